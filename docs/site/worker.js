// A browser refuses workers to pages that it opened from a disk. The search runs in a hidden frame there.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      inner.importScripts = (...urls) => urls.reduce(
        (earlier, one) => earlier.then(() => this.#load(inner, one)), Promise.resolve());
      this.inner = inner;
      this.ready = this.#load(inner, new URL(url, location.href).href);
    }

    #load(inner, url) {
      return new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = failed;
        inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
