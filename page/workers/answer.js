// How a worker answers the questions of the page, which come with a port for the answer and for what there is so far.

const TURN_MS = 30; // of work before other questions get a turn
let turnBegan_ms = 0;

// Answers with functions: each takes a question, and a function that passes on what there is so far.
export function answerWith(functions) {
  onmessage = async ({ data: { path, ...question }, ports: [port] }) => {
    try {
      port.postMessage({ answer: await functions[path](question, (soFar) => port.postMessage({ soFar })) });
    } catch ({ message }) {
      port.postMessage({ error: message });
    }
  };
}

// Lets the worker receive other questions, if it has worked for some time.
export async function letOthersAsk() {
  if (performance.now() - turnBegan_ms < TURN_MS) return;
  const { port1, port2 } = new MessageChannel(); // a timer would wait for 4 ms
  await new Promise((go) => {
    port1.onmessage = go;
    port2.postMessage(null);
  });
  turnBegan_ms = performance.now();
}
