//! Serves a read-only status document over a Unix socket.
//!
//! A client connects and reads one JSON document until the end of the stream. The server ignores
//! data from the client.

use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Limit of concurrent clients. Further clients wait in the backlog of the socket.
const CLIENTS_MAX: usize = 16;

/// Time in which a client must read its document.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without data after which [`query`] fails.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// An error of the server or of a client of the status socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process listens on the path of the socket.
    #[error("{0} is served by another process: choose another --instance, or stop that process")]
    InUse(PathBuf),

    /// No process listens on the path of the socket.
    #[error("no process listens on {path}: is it running, with this --instance and --run-dir?")]
    NotRunning {
        /// Path of the socket.
        path: PathBuf,
        /// Error of `connect`.
        source: io::Error,
    },

    /// The socket or its directory cannot be created, read or written.
    #[error("failed to use the status socket {path}")]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call that failed.
        source: io::Error,
    },

    /// The received document is not JSON.
    #[error("{path} sent a status that is not JSON")]
    Json {
        /// Path of the socket.
        path: PathBuf,
        /// Position and cause of the parse error.
        source: serde_json::Error,
    },
}

/// A listening status socket. Dropping the value removes the socket's file.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Creates the socket at `path`, and replaces the socket of a process that died.
    ///
    /// # Errors
    ///
    /// Returns [`Error::InUse`] if another process listens on `path`, and [`Error::Io`] if the
    /// socket or its directory cannot be created.
    pub async fn bind(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        if let Some(directory) = path.parent() {
            tokio::fs::create_dir_all(directory).await.map_err(io)?;
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(Error::InUse(path.to_owned()));
        }
        match tokio::fs::remove_file(path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }

        Ok(Self {
            listener: UnixListener::bind(path).map_err(io)?,
            path: path.to_owned(),
        })
    }

    /// Serves each client the current value of `document`, until the future is dropped.
    pub async fn serve(self, document: impl Fn() -> Value) {
        self.serve_async(|| std::future::ready(document())).await;
    }

    /// Serves each client the current document, which an asynchronous function computes.
    ///
    /// Other clients wait while the function computes a document. The future runs until it is
    /// dropped.
    pub async fn serve_async<F: Future<Output = Value>>(self, document: impl Fn() -> F) {
        let permits = Arc::new(Semaphore::new(CLIENTS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let mut client = match self.listener.accept().await {
                Ok((client, _)) => client,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a status client");
                    // The limit of open files is probably reached. Wait until some files are
                    // closed, instead of retrying in a busy loop.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let text = document().await.to_string();
            tokio::spawn(async move {
                let write = async {
                    client.write_all(text.as_bytes()).await?;
                    client.shutdown().await
                };
                if !matches!(tokio::time::timeout(WRITE_TIMEOUT, write).await, Ok(Ok(()))) {
                    tracing::debug!("a status client disconnected before it had read its document");
                }
                drop(permit);
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "failed to remove the status socket");
        }
    }
}

/// Returns the status document of the process that listens on `path`.
///
/// # Errors
///
/// Returns [`Error::NotRunning`] if no process listens, [`Error::Io`] if the document cannot be
/// read, and [`Error::Json`] if the document is not JSON.
pub fn query(path: &Path) -> Result<Value, Error> {
    use std::io::Read as _;
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let mut stream =
        std::os::unix::net::UnixStream::connect(path).map_err(|source| Error::NotRunning {
            path: path.to_owned(),
            source,
        })?;
    stream.set_read_timeout(Some(QUERY_TIMEOUT)).map_err(io)?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).map_err(io)?;

    serde_json::from_slice(&text).map_err(|source| Error::Json {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("liqo-status-{}-{name}.sock", std::process::id()))
    }

    #[tokio::test]
    async fn a_client_reads_the_document_and_the_server_removes_its_socket() {
        let path = path("read");
        let server = Server::bind(&path).await.unwrap();
        let served = tokio::spawn(server.serve(|| json!({"peers": 3})));

        let query_path = path.clone();
        let document = tokio::task::spawn_blocking(move || query(&query_path))
            .await
            .unwrap();
        served.abort();
        let _ = served.await;

        assert_eq!(document.unwrap(), json!({"peers": 3}));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_live_one_is_not() {
        let path = path("replace");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());

        let server = Server::bind(&path).await.unwrap();
        let second = Server::bind(&path).await;

        assert!(matches!(second, Err(Error::InUse(_))));
        drop(server);
    }

    #[test]
    fn the_error_says_that_no_process_listens() {
        let error = query(&path("missing")).unwrap_err();

        assert!(error.to_string().contains("no process listens"));
    }
}
