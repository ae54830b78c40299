// A worker of the page, which answers questions.

export const ENDED = new Error("Another model has taken the place of this one.");
const SCRIPTS = {}; // the address of each worker's scripts

export class Engine {
  // id: of the element with the worker's scripts.
  constructor(id) {
    SCRIPTS[id] ??= URL.createObjectURL(new Blob([document.getElementById(id).textContent]));
    this.worker = new Worker(SCRIPTS[id]);
    this.unanswered = new Set();
  }

  // Asks, and passes on what the worker has so far. Throws the worker's error, or ENDED if it ends before the answer.
  async ask(path, question = {}, pass = () => {}) {
    if (this.isEnded) throw ENDED;
    const { port1, port2 } = new MessageChannel();
    this.worker.postMessage({ path, ...question }, [port2]);
    return new Promise((resolve, reject) => {
      this.unanswered.add(reject);
      port1.onmessage = ({ data: { answer, error, soFar } }) => {
        if (this.isEnded) return; // it was on its way
        if (soFar !== undefined) return pass(soFar);
        this.unanswered.delete(reject);
        if (error) reject(new Error(error));
        else resolve(answer);
      };
    });
  }

  end() {
    this.isEnded = true;
    this.worker.terminate();
    this.unanswered.forEach((reject) => reject(ENDED));
  }
}
