//! HTTP requests to pods that respond with their identity.

use crate::fixture::machine;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{Deadline, SOON, until};
use std::collections::BTreeSet;
use std::fmt::{self, Display};

/// The number of requests, each over a new connection. With two pods, the probability that one pod
/// gets no request is one in eight million.
const REQUESTS: usize = 24;

/// The client that sends requests.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// The machine, in its initial network namespace.
    Machine,
    /// A node, in its own network namespace.
    Node(Node),
    /// A pod, given by namespace and name.
    Pod(&'a Namespace, &'a str),
}

/// The response of a pod, with the pod's identity and the client's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Response {
    pub(crate) client: String,
    pub(crate) pod: String,
    pub(crate) node: String,
}

impl Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Node(node) => f.write_str(node.name()),
            Self::Pod(namespace, pod) => write!(f, "{namespace:?}/{pod}"),
        }
    }
}

impl Source<'_> {
    /// Runs `curl`, and returns its standard output.
    pub(crate) async fn curl(&self, words: &[&str]) -> Result<String> {
        let words = [&["--silent", "--show-error", "--max-time", "5"], words].concat();
        match self {
            Self::Machine => machine("curl", &words),
            Self::Node(node) => node.exec("curl", &words),
            Self::Pod(namespace, pod) => {
                let exec = ["exec", pod, "--", "curl"];
                namespace.kubectl(&[&exec, words.as_slice()].concat()).await
            }
        }
    }

    /// Sends [`REQUESTS`] requests to `to`, which is a host with an optional port. Returns the
    /// distinct responses, and fails at the first request without a response.
    pub(crate) async fn requests(&self, to: &str) -> Result<BTreeSet<Response>> {
        // `curl` repeats the request for each number of the range.
        let url = format!("http://{to}/[1-{REQUESTS}]");
        let text = self.curl(&["--fail-early", &url]).await?;
        ensure!(
            text.lines().count() == REQUESTS,
            "not {REQUESTS} responses: {text}"
        );
        text.lines().map(Response::parse).collect()
    }

    /// Waits until requests to `to` reach exactly these pods, without a failure. Kube-proxy
    /// programs its rules with a delay after pods are ready.
    pub(crate) async fn reaches(&self, to: &str, expected: &BTreeSet<String>) -> Result<()> {
        let what = format!("{self} to reach {expected:?} by {to}");
        until(Deadline::after(SOON), &what, async || {
            let responses = self.requests(to).await?;
            let pods: BTreeSet<_> = responses.iter().map(|it| it.pod.clone()).collect();
            ensure!(pods == *expected, "{pods:?} responded");
            Ok(())
        })
        .await
    }

    /// Waits until connections to `to` are refused.
    pub(crate) async fn is_refused(&self, to: &str) -> Result<()> {
        let what = format!("{to} to refuse {self}");
        until(Deadline::after(SOON), &what, async || {
            let outcome = self.curl(&[&format!("http://{to}/")]).await;
            let error = outcome.err().context("the connection was accepted")?;
            ensure!(format!("{error:#}").contains("curl: (7)"), "{error:#}");
            Ok(())
        })
        .await
    }
}

impl Response {
    /// Parses a line such as `client=10.1.0.9:40112 pod=web-1 node=a1 ip=10.1.0.7`.
    fn parse(line: &str) -> Result<Self> {
        let field = |name: &str| {
            line.split(' ')
                .find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
                .with_context(|| format!("{line:?} has no {name}"))
        };
        let client = field("client")?;
        let client = client.rsplit_once(':').map_or(client, |(ip, _port)| ip);

        Ok(Self {
            client: client.to_owned(),
            pod: field("pod")?.to_owned(),
            node: field("node")?.to_owned(),
        })
    }
}
