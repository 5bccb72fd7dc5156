//! Sends the requests: those of a pod concurrently from one shell in the pod.

use super::objects::NAMESPACE;
use super::plan::{Call, Caller};
use crate::cluster::Cluster;
use crate::pair::Side;
use anyhow::{Context as _, Result};
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Limit of one request, including retries.
const CALL_TIMEOUT: Duration = Duration::from_secs(12);

/// Sends a request to every argument and retries for ten seconds, because kube-proxy may take seconds to
/// program a new Service. Prints `ok` or `fail`, the argument and the output of the failed program.
const SCRIPT: &str = r#"call() {
  if command -v curl >/dev/null; then curl -sS -m 2 -o /dev/null "http://$1/" 2>&1
  else wget -q -T 2 -O /dev/null "http://$1/" 2>&1; fi
}
end=$(($(date +%s) + 10))
for target in "$@"; do (
  while :; do
    if output=$(call "$target"); then echo "ok $target"; exit 0; fi
    [ "$(date +%s)" -lt "$end" ] || break
    sleep 0.5
  done
  echo "fail $target $(echo "$output" | tr '\n' ' ')"
) & done
wait"#;

/// A request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The request.
    pub(crate) call: Call,
    /// The reason of the failure; none after a success.
    pub(crate) failure: Option<String>,
}

impl Outcome {
    /// Returns whether a response arrived.
    pub(crate) fn is_ok(&self) -> bool {
        self.failure.is_none()
    }
}

/// Sends all requests of a cluster's pods and of this process.
///
/// # Errors
///
/// Returns an error if no shell can be run in a pod.
pub(crate) async fn all(from: &Side, calls: &[Call]) -> Result<Vec<Outcome>> {
    let mut by_pod: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut from_here: BTreeSet<&str> = BTreeSet::new();
    for call in calls {
        match &call.caller {
            Caller::Pod(pod, _) => {
                by_pod.entry(pod).or_default().insert(&call.address);
            }
            Caller::Here => {
                from_here.insert(&call.address);
            }
        }
    }
    let shells = by_pod
        .into_iter()
        .map(async |(pod, addresses)| (pod.to_owned(), in_pod(from, pod, &addresses).await));
    let direct = from_here
        .into_iter()
        .map(async |address| (address.to_owned(), direct(address).await));
    let (shells, direct) = tokio::join!(join_all(shells), join_all(direct));
    let mut outputs = BTreeMap::new();
    for (pod, text) in shells {
        outputs.insert(pod, text?);
    }
    let direct: BTreeMap<String, Option<String>> = direct.into_iter().collect();
    let outcome = |call: &Call| {
        let failure = match &call.caller {
            Caller::Pod(pod, _) => {
                failure(outputs.get(pod).map_or("", String::as_str), &call.address)
            }
            Caller::Here => direct.get(&call.address).cloned().flatten(),
        };
        Outcome {
            call: call.clone(),
            failure,
        }
    };
    Ok(calls.iter().map(outcome).collect())
}

async fn in_pod(from: &Side, pod: &str, addresses: &BTreeSet<&str>) -> Result<String> {
    let command = ["sh", "-c", SCRIPT, "sh"]
        .into_iter()
        .chain(addresses.iter().copied());
    // After the limit, the output so far is used. Missing lines count as failures.
    let limit = CALL_TIMEOUT + Duration::from_secs(2);

    output(&from.cluster, (NAMESPACE, pod), command, limit).await
}

/// Runs a program in a pod, which is named by namespace and name, and returns its standard output until the limit.
///
/// # Errors
///
/// Returns an error if the program cannot be run.
pub(super) async fn output<'a>(
    cluster: &Cluster,
    (namespace, pod): (&str, &str),
    command: impl IntoIterator<Item = &'a str> + std::fmt::Debug,
    limit: Duration,
) -> Result<String> {
    let api = Api::<Pod>::namespaced(cluster.client.clone(), namespace);
    let parameters = AttachParams::default()
        .stdin(false)
        .stdout(true)
        .stderr(false);
    let mut process = api
        .exec(pod, command, &parameters)
        .await
        .map_err(cluster.failed(&format!("run a program in pod {pod}")))?;
    let mut output = process.stdout().context("the program has no output")?;
    let mut text = String::new();
    let _ = timeout(limit, output.read_to_string(&mut text)).await;
    process.abort();
    Ok(text)
}

/// Returns the reason why a request failed, from the output of the shell.
fn failure(output: &str, address: &str) -> Option<String> {
    for line in output.lines() {
        let mut words = line.splitn(3, ' ');
        let (verdict, target) = (words.next(), words.next());
        if target != Some(address) {
            continue;
        }
        return match verdict {
            Some("ok") => None,
            _ => Some(words.next().unwrap_or("no reason given").trim().to_owned()),
        };
    }
    Some("the pod reported no result".to_owned())
}

/// Sends a request from this process.
async fn direct(address: &str) -> Option<String> {
    let attempt = async {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(b"GET / HTTP/1.0\r\nHost: test\r\n\r\n")
            .await?;
        let mut head = [0; 5];
        stream.read_exact(&mut head).await?;
        Ok::<_, std::io::Error>(head == *b"HTTP/")
    };
    match timeout(CALL_TIMEOUT, attempt).await {
        Ok(Ok(true)) => None,
        Ok(Ok(false)) => Some("the response is not HTTP".to_owned()),
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("timed out".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_each_request_is_in_its_own_line() {
        let output = "ok 10.71.0.2:8080\nfail 10.71.1.2:8080 curl: (28) timed out \n";

        assert_eq!(failure(output, "10.71.0.2:8080"), None);
        assert_eq!(
            failure(output, "10.71.1.2:8080").unwrap(),
            "curl: (28) timed out"
        );
        assert_eq!(
            failure(output, "10.71.0.2:80").unwrap(),
            "the pod reported no result"
        );
    }

    #[tokio::test]
    async fn this_process_sends_a_request() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 16];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await.unwrap();
        };

        let (failure, ()) = tokio::join!(direct(&address), server);

        assert_eq!(failure, None);
    }
}
