// Search, where a page is opened from a disk.  Browsers start no Worker there, so this one runs its
// script in a hidden frame.  The theme would load such a script from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((resolve) => {
        inside.importScripts = async (...urls) => {
          for (const each of urls) {
            await load(inside.document, new URL(each, new URL(url, location.href)).href);
          }
        };
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        };
        load(inside.document, new URL(url, location.href).href).then(resolve);
      });
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };

  function load(page, url) {
    return new Promise((resolve, reject) => {
      const script = page.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      page.head.append(script);
    });
  }
}
