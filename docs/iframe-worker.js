// The search of the guide in a folder of files, where browsers start no worker: its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.target = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== this.target) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      });
      const start = `postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
          const script = Object.assign(document.createElement("script"), { src: url, onload: done, onerror: done });
          document.body.append(script);
        })), Promise.resolve());`;
      const script = new URL(url, location.href).href.replace(/"/g, "%22");
      this.ready = new Promise((done) => { this.target.workerReady = done; });
      this.target.document.open();
      this.target.document.write(`<body><script>${start}<\/script><script src="${script}" onload="workerReady()"><\/script>`);
      this.target.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.target.dispatchEvent(new MessageEvent("message", { data, source: window })));
    }
    terminate() { this.target.frameElement?.remove(); }
  };
}
