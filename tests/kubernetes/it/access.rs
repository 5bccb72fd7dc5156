//! Tests of access to pods and nodes: `exec`, `attach`, `logs`, `cp`, `port-forward`, the kubelet's
//! API, and the API server from a pod.

use crate::fixture::{Clusters, Suite, machine, parallel, scratch};
use crate::workloads::web;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::Value;
use std::path::Path;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        exec_passes_on_input_output_and_exit_code,
        attach_shows_the_output_of_a_running_container,
        attach_passes_input_to_a_running_container,
        logs_are_followed_while_they_are_written,
        logs_of_a_crashed_container_are_kept,
        a_file_is_copied_to_a_pod_and_back,
        a_pods_port_is_forwarded,
        a_services_port_is_forwarded,
        the_api_server_proxies_to_kubelets,
        a_pod_has_the_rights_of_its_service_account,
    );
}

async fn exec_passes_on_input_output_and_exit_code(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("exec").await?;
    namespace.apply(COUNTER).await?;
    namespace.wait("pod/counter", "Ready").await?;
    // The input is larger than all buffers on the path.
    let input: String = (0..200_000).map(|number| format!("{number}\n")).collect();

    let cat = ["exec", "-i", "counter", "--", "cat"];
    let output = namespace.kubectl_with(&cat, &input).await?;
    let script = "echo out; echo err >&2; exit 42";
    let failed = namespace
        .command(&["exec", "counter", "--", "sh", "-c", script])
        .output()
        .context("failed to start kubectl")?;

    ensure!(output == input, "{} of {} bytes", output.len(), input.len());
    ensure!(failed.status.code() == Some(42), "{failed:?}");
    ensure!(failed.stdout == b"out\n", "{failed:?}");
    ensure!(failed.stderr.starts_with(b"err\n"), "{failed:?}");
    Ok(())
}

async fn attach_shows_the_output_of_a_running_container(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("attach").await?;
    namespace.apply(COUNTER).await?;
    namespace.wait("pod/counter", "Ready").await?;

    let mut attached = namespace.spawn(&["attach", "counter"])?;
    attached.line_with("number ", SOON).await?;

    let last = last_number(&namespace).await?;
    for number in last + 1..=last + 3 {
        attached
            .line_with(&format!("number {number}."), SOON)
            .await?;
    }
    Ok(())
}

async fn attach_passes_input_to_a_running_container(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("attach-input").await?;
    namespace.apply(LISTENER).await?;
    namespace.wait("pod/listener", "Ready").await?;

    let attach = ["attach", "-i", "listener"];
    namespace.kubectl_with(&attach, "ave\n").await?;

    namespace
        .wait("pod/listener", "jsonpath={.status.phase}=Succeeded")
        .await?;
    let log = namespace.kubectl(&["logs", "listener"]).await?;
    ensure!(log == "heard ave\n", "{log}");
    Ok(())
}

const LISTENER: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: listener
spec:
  restartPolicy: Never
  containers:
    - name: listener
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      stdin: true
      stdinOnce: true
      command: [sh, -c, 'read -r line; echo heard $line']
";

async fn logs_are_followed_while_they_are_written(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("logs").await?;
    namespace.apply(COUNTER).await?;
    namespace.wait("pod/counter", "Ready").await?;

    let mut logs = namespace.spawn(&["logs", "-f", "counter"])?;
    logs.line_with("number 1.", SOON).await?;

    // The output contains the numbers from before the start of `logs`, and the later ones.
    let last = last_number(&namespace).await?;
    for number in 2..=last + 3 {
        logs.line_with(&format!("number {number}."), SOON).await?;
    }
    Ok(())
}

async fn logs_of_a_crashed_container_are_kept(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("crash").await?;

    namespace.apply(CRASHER).await?;
    namespace.wait("pod/crasher", "Ready").await?;

    let before = namespace
        .kubectl(&["logs", "--previous", "crasher"])
        .await?;
    ensure!(before == "life 1\n", "{before}");
    let now = namespace.kubectl(&["logs", "crasher"]).await?;
    ensure!(now == "life 2\n", "{now}");
    let code = "{.status.containerStatuses[0].lastState.terminated.exitCode}";
    let code = namespace.get("pod/crasher", code).await?;
    ensure!(code == "3", "{code}");
    Ok(())
}

/// A pod whose container crashes once, and is ready after its restart.
const CRASHER: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: crasher
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: crasher
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command:
        - sh
        - -c
        - |
          echo life >>/lives/all
          echo life $(wc -l </lives/all)
          [ $(wc -l </lives/all) = 2 ] || exit 3
          touch /tmp/ready
          exec sleep infinity
      readinessProbe:
        exec: {command: [test, -e, /tmp/ready]}
        periodSeconds: 1
      volumeMounts:
        - {name: lives, mountPath: /lives}
  volumes:
    - name: lives
      emptyDir: {}
";

async fn a_file_is_copied_to_a_pod_and_back(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("cp").await?;
    namespace.apply(COUNTER).await?;
    namespace.wait("pod/counter", "Ready").await?;
    let folder = scratch("cp")?;
    let (there, back) = (folder.join("there"), folder.join("back"));
    let content: Vec<u8> = (0..1_000_000_u32).map(|it| (it % 251) as u8).collect();
    std::fs::write(&there, &content).context("failed to write a file")?;

    let copy = async |from: &str, to: &str| namespace.kubectl(&["cp", from, to]).await;
    copy(text(&there)?, "counter:/tmp/copied").await?;
    copy("counter:/tmp/copied", text(&back)?).await?;

    let inside = namespace.sh("counter", "wc -c </tmp/copied").await?;
    ensure!(inside.trim() == "1000000", "{inside}");
    let content_back = std::fs::read(&back).context("no file was copied back")?;
    ensure!(content_back == content, "{} bytes", content_back.len());
    Ok(())
}

async fn a_pods_port_is_forwarded(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("forward-pod").await?;
    let pods = web(&namespace).await?;

    for pod in &pods {
        let responses = forwarded(&namespace, &format!("pod/{pod}"), ":8080").await?;
        for response in responses {
            ensure!(response.contains(&format!("pod={pod} ")), "{response}");
        }
    }

    Ok(())
}

async fn a_services_port_is_forwarded(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("forward-service").await?;
    web(&namespace).await?;

    let [first, second] = forwarded(&namespace, "service/web", ":80").await?;

    // `kubectl port-forward` selects a pod when the command starts, so both requests reach the same
    // pod.
    let pod = |response: &str| response.split(' ').nth(1).map(str::to_owned);
    ensure!(first.contains("pod=web-"), "{first}");
    ensure!(pod(&first) == pod(&second), "{first}{second}");
    Ok(())
}

/// Sends two requests through a forwarded port, and returns the responses. The kernel chooses the
/// local port.
async fn forwarded(namespace: &Namespace, to: &str, port: &str) -> Result<[String; 2]> {
    let mut forwarding = namespace.spawn(&["port-forward", to, port])?;
    let line = forwarding.line_with("127.0.0.1:", SOON).await?;
    // `kubectl` prints: Forwarding from 127.0.0.1:40123 -> 8080
    let (_, rest) = line
        .split_once("127.0.0.1:")
        .context("the line has an address")?;
    let port = rest.split(' ').next().unwrap_or_default();
    let url = format!("http://127.0.0.1:{port}/");
    let get = || machine("curl", &["-sS", "-m", "10", &url]);

    Ok([get()?, get()?])
}

async fn the_api_server_proxies_to_kubelets(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("node-api").await?;
    let pods = web(&namespace).await?;

    for node in clusters.rome.nodes() {
        let name = node.name();
        let path = format!("/api/v1/nodes/{name}/proxy/stats/summary");
        until(
            Deadline::after(SOON),
            "the pod in the summary",
            async || {
                let summary = namespace.kubectl(&["get", "--raw", &path]).await?;
                let summary: Value = serde_json::from_str(&summary).context("no JSON")?;
                ensure!(summary["node"]["nodeName"] == name, "{summary}");
                let known = summary["pods"].as_array().context("no pods")?;
                let known: Vec<_> = known
                    .iter()
                    .filter_map(|it| it["podRef"]["name"].as_str())
                    .filter(|pod| pods.iter().any(|it| it == pod))
                    .collect();
                ensure!(known.len() == 1, "{known:?} of {pods:?}");
                Ok(())
            },
        )
        .await?;
    }

    Ok(())
}

async fn a_pod_has_the_rights_of_its_service_account(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("service-account").await?;
    namespace.apply(COUNTER).await?;
    namespace.wait("pod/counter", "Ready").await?;
    let list = r#"
account=/var/run/secrets/kubernetes.io/serviceaccount
url=https://kubernetes.default.svc/api/v1/namespaces/$(cat $account/namespace)/pods
curl -sS -m 5 --cacert $account/ca.crt -H "Authorization: Bearer $(cat $account/token)" $url
"#;

    let refused: Value = serde_json::from_str(&namespace.sh("counter", list).await?)?;
    let words =
        "create rolebinding view --clusterrole=view --serviceaccount=service-account:default";
    let words: Vec<_> = words.split(' ').collect();
    namespace.kubectl(&words).await?;
    let granted = until(
        Deadline::after(SOON),
        "the right to list pods",
        async || {
            let response: Value = serde_json::from_str(&namespace.sh("counter", list).await?)?;
            ensure!(response["kind"] == "PodList", "{response}");
            Ok(response)
        },
    )
    .await?;

    let user = "system:serviceaccount:service-account:default";
    ensure!(refused["code"] == 403, "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains(user), "{message}");
    let name = &granted["items"][0]["metadata"]["name"];
    ensure!(name == "counter", "{granted}");
    Ok(())
}

/// A pod that prints `number 1.`, `number 2.` and so on, five numbers per second.
const COUNTER: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: counter
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: counter
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command: [sh, -c, 'while :; do i=$((i + 1)); echo number $i.; sleep 0.2; done']
";

/// Returns the last number that the pod of [`COUNTER`] has printed.
async fn last_number(namespace: &Namespace) -> Result<u32> {
    until(Deadline::after(SOON), "the first number", async || {
        let line = namespace.kubectl(&["logs", "--tail=1", "counter"]).await?;
        let number = line
            .trim()
            .strip_prefix("number ")
            .and_then(|it| it.strip_suffix('.'));
        number
            .and_then(|it| it.parse().ok())
            .with_context(|| line.clone())
    })
    .await
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is no UTF-8")
}
