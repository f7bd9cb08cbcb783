/* The requests of a kernel to its memory host travel as comm_open messages, which JupyterLab and Notebook see too. A page
 * that knows no such comm complains in its console and sends the kernel a comm_close for each request. This extension
 * makes the target known: the page takes note, says nothing and keeps nothing. No build, no dependency: the form is that
 * of a prebuilt extension, written by hand.
 */
(() => {
  const TARGET = "host.request";

  const plugin = {
    id: "rlm-memory:requests",
    description: "Ignores the requests of kernels to their memory host.",
    autoStart: true,
    activate: (app) => {
      // Every notebook and console gets its kernel through this one method; the kernel's id tells nothing more.
      const kernels = app.serviceManager.kernels;
      const connect = kernels.connectTo.bind(kernels);
      kernels.connectTo = (options) => {
        const connection = connect(options);
        // The page has no part in the exchange: it forgets the comm without closing it in the kernel.
        connection.registerCommTarget(TARGET, (comm) => comm.dispose());
        return connection;
      };
    },
  };

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["rlm-memory"] = {
    init: () => undefined,
    get: () => Promise.resolve(() => ({ __esModule: true, default: plugin })),
  };
})();
