// A worker of the page, which answers questions.

class Engine {
  // id: of the element with the worker's scripts.
  constructor(id) {
    this.worker = new Worker(URL.createObjectURL(new Blob([byId(id).textContent])));
    this.unanswered = new Set();
  }

  // Asks, and passes on what the worker has so far. Throws the worker's error, or another one if it ends before.
  ask(path, question = {}, pass = () => {}) {
    const { port1, port2 } = new MessageChannel();
    this.worker.postMessage({ path, ...question }, [port2]);
    return new Promise((resolve, reject) => {
      this.unanswered.add(reject);
      port1.onmessage = ({ data: { answer, error, soFar } }) => {
        if (soFar !== undefined) return pass(soFar);
        this.unanswered.delete(reject);
        if (error) reject(new Error(error));
        else resolve(answer);
      };
    });
  }

  end() {
    this.worker.terminate();
    const error = Object.assign(new Error("Another model has taken the place of this one."), { isEnd: true });
    this.unanswered.forEach((reject) => reject(error));
  }
}
