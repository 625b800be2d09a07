/* A page that is opened from a folder may start no worker, and the search runs in one. There, and nowhere else, this puts
   in its place a class that runs the script in a frame. The search looks for the class by its name. */
"use strict"
if (location.protocol === "file:") {
  window.IFrameWorker = class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = `<script>
        self.postMessage = (data) => parent.postMessage(data, "*")
        self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script")
          Object.assign(script, { src: url, onload: done, onerror: failed })
          document.head.append(script)
        })), Promise.resolve())
      <\/script><script src="${new URL(url, location.href)}"><\/script>`
      document.body.append(this.frame)
      this.frame.addEventListener("load", () => {
        for (const data of this.waiting.splice(0)) this.deliver(data)
        this.waiting = null
      }, { once: true })
      window.addEventListener("message", (event) => {
        if (event.source !== this.frame.contentWindow) return
        const told = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(told)
        if (this.onmessage) this.onmessage(told)
      })
    }
    deliver(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.deliver(data)
    }
    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
