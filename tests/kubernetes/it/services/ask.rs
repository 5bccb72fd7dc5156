//! Questions to pods that tell who they are, and their answers.

use super::SOON;
use crate::fixture::machine;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{Deadline, until};
use std::collections::BTreeSet;
use std::fmt::{self, Display};

/// How often is asked, each time over a new connection: that one of two pods never
/// answers by chance happens once in eight million times.
const ASKS: usize = 24;

/// Who asks.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// The machine, which is none of the nodes.
    Machine,
    /// A node itself.
    Node(Node),
    /// A pod.
    Pod(&'a Namespace, &'a str),
}

/// What a pod says of itself, and of whom it sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
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
    /// Runs `curl`, and returns what it printed.
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

    /// Asks many times, and fails at the first question without an answer; `to` is a
    /// host, with a port unless that is 80. Returns the answers that differ.
    pub(crate) async fn ask(&self, to: &str) -> Result<BTreeSet<Answer>> {
        // A number for each question, by curl's own notation.
        let url = format!("http://{to}/[1-{ASKS}]");
        let text = self.curl(&["--fail-early", &url]).await?;
        ensure!(text.lines().count() == ASKS, "not {ASKS} answers: {text}");
        text.lines().map(Answer::read).collect()
    }

    /// Waits until `to` leads to exactly these pods, and until all questions of a round
    /// are answered: kube-proxy writes its rules a while after the pods are ready.
    pub(crate) async fn reaches(&self, to: &str, expected: &BTreeSet<String>) -> Result<()> {
        let what = format!("{to} to lead {self} to {expected:?}");
        until(Deadline::after(SOON), &what, async || {
            let answers = self.ask(to).await?;
            let pods: BTreeSet<_> = answers.iter().map(|it| it.pod.clone()).collect();
            ensure!(pods == *expected, "{pods:?} answer");
            Ok(())
        })
        .await
    }

    /// Waits until nobody is there: until connections are refused.
    pub(crate) async fn is_refused(&self, to: &str) -> Result<()> {
        let what = format!("{to} to refuse {self}");
        until(Deadline::after(SOON), &what, async || {
            let outcome = self.curl(&[&format!("http://{to}/")]).await;
            let error = outcome.err().context("there was an answer")?;
            ensure!(format!("{error:#}").contains("curl: (7)"), "{error:#}");
            Ok(())
        })
        .await
    }
}

impl Answer {
    /// Reads a line such as `client=10.1.0.9:40112 pod=web-1 node=a1 ip=10.1.0.7`.
    fn read(line: &str) -> Result<Self> {
        let field = |name: &str| {
            line.split(' ')
                .find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
                .with_context(|| format!("{line:?} tells no {name}"))
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
