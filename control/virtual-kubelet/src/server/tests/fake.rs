//! An API server that records requests and replies as a test says.

use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Channel, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::Value;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub(super) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Rule = dyn Fn(&Received) -> Reply + Send + Sync;

/// A request, with its body.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

/// Stops when dropped.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    received: watch::Sender<Vec<Received>>,
    /// Streams that were upgraded, and have ended.
    ended: watch::Sender<usize>,
    task: JoinHandle<()>,
}

impl Fake {
    pub(super) async fn start(rule: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, ended) = (watch::Sender::default(), watch::Sender::default());
        let shared: (watch::Sender<Vec<Received>>, watch::Sender<usize>) =
            (received.clone(), ended.clone());
        let rule: Arc<Rule> = Arc::new(rule);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (rule, shared) = (Arc::clone(&rule), shared.clone());
                let service =
                    service_fn(move |request| respond(request, Arc::clone(&rule), shared.clone()));
                let http = http1::Builder::new();
                let connection = http.serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection.with_upgrades());
            }
        });

        Self {
            address,
            received,
            ended,
            task,
        }
    }

    /// Returns a client with a token.
    pub(super) fn client(&self, token: &str) -> Client {
        let uri = format!("http://{}", self.address);
        let mut config = Config::new(uri.parse().unwrap());
        config.auth_info.token = Some(token.to_owned().into());
        control_runtime::transport::client(&config).unwrap()
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.borrow().clone()
    }

    /// Waits until a stream has ended.
    pub(super) async fn ends(&self, count: usize) {
        let mut ended = self.ended.subscribe();
        ended.wait_for(|it| *it >= count).await.unwrap();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn respond(
    mut request: Request<Incoming>,
    rule: Arc<Rule>,
    (received, ended): (watch::Sender<Vec<Received>>, watch::Sender<usize>),
) -> Result<Reply, Infallible> {
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let request = Received {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let mut reply = rule(&request);
    received.send_modify(|it| it.push(request));
    if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            echo(&mut stream).await;
            ended.send_modify(|it| *it += 1);
        });
    } else {
        let ended = Ended(ended);
        reply = reply.map(|body| body.map_frame(move |it| (&ended, it).1).boxed_unsync());
    }

    Ok(reply)
}

/// Counts a body that has ended, or whose client is gone.
struct Ended(watch::Sender<usize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_modify(|it| *it += 1);
    }
}

/// Sends a greeting, and then every byte in upper case.
async fn echo(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) {
    stream.write_all(b"\x80\x03\x00\x02greeting").await.unwrap();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                let upper = buffer[..read].to_ascii_uppercase();
                if stream.write_all(&upper).await.is_err() {
                    return;
                }
            }
        }
    }
}

pub(super) fn reply(status: u16, content: impl Into<Bytes>) -> Reply {
    let body = Full::new(content.into()).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

pub(super) fn json(status: u16, object: &Value) -> Reply {
    reply(status, object.to_string())
}

/// Returns the response that switches to another protocol.
pub(super) fn switching(headers: &[(&str, &str)]) -> Reply {
    let mut response = reply(101, "");
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}

/// Returns a response whose body consists of what is sent.
pub(super) fn streamed() -> (Reply, mpsc::UnboundedSender<String>) {
    let (sender, mut texts) = mpsc::unbounded_channel::<String>();
    let (mut body, channel) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        while let Some(text) = texts.recv().await {
            if body.send_data(text.into()).await.is_err() {
                return;
            }
        }
    });
    (Response::new(channel.boxed_unsync()), sender)
}
