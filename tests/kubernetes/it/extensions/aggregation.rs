//! Tests of an aggregated API, to which the API server forwards requests.

use super::{refusal, server};
use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::{Value, json};

pub(super) fn add(suite: &mut Suite) {
    parallel!(suite, an_aggregated_api_receives_the_user_of_a_request);
}

async fn an_aggregated_api_receives_the_user_of_a_request(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("aggregation").await?;
    let front_proxy = "{.data.requestheader-client-ca-file}";
    let front_proxy = [
        "get",
        "--namespace=kube-system",
        "configmap/extension-apiserver-authentication",
        "-o",
        &format!("jsonpath={front_proxy}"),
    ];
    let front_proxy = namespace.kubectl(&front_proxy).await?;
    let authority = server::start(&namespace, GREET, Some(&front_proxy)).await?;

    let api = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": NAME},
        "spec": {
            "group": "it.liqo.io", "version": "v1alpha1",
            "groupPriorityMinimum": 1000, "versionPriority": 10,
            "service": {"name": "server", "namespace": "aggregation"},
            "caBundle": authority,
        },
    });
    // The APIService must be removed before the namespace, because Kubernetes deletes no namespace
    // while an APIService is unavailable. Cleanups run in reverse order of registration.
    let cluster = namespace.clone();
    cleanup::defer(format!("APIService {NAME}"), async move || {
        let delete = ["delete", "apiservice", NAME, "--ignore-not-found"];
        cluster.kubectl(&delete).await.map(drop)
    });
    namespace.apply(&api.to_string()).await?;
    namespace
        .wait(&format!("apiservice/{NAME}"), "Available")
        .await?;

    let path = "/apis/it.liqo.io/v1alpha1/greetings/anyone";
    let greeting = until(Deadline::after(SOON), "the first greeting", async || {
        greet(&namespace, &["--raw", path]).await
    })
    .await?;
    ensure!(greeting["user"] == "admin", "{greeting}");
    ensure!(
        greeting["groups"] == "system:masters,system:authenticated",
        "{greeting}"
    );
    ensure!(greeting["path"] == path, "{greeting}");
    let other = ["--as=guest", "--as-group=liqo", "--as-group=system:masters"];
    let greeting = greet(&namespace, &[&["--raw", path], &other[..]].concat()).await?;
    ensure!(greeting["user"] == "guest", "{greeting}");
    let greeting = greet(
        &namespace,
        &["greetings.v1alpha1.it.liqo.io", "you", "-o", "json"],
    )
    .await?;
    ensure!(greeting["metadata"]["name"] == "you", "{greeting}");
    refuses_others(&namespace).await
}

const NAME: &str = "v1alpha1.it.liqo.io";

/// A script that returns the user and the path of a request. The API supports only the verb `get`.
/// The namespace controller therefore does not list the resource when it deletes a namespace.
const GREET: &str = r#"
header() { while read -r line; do
  [ "${line%%:*}" = "$1" ] && all+="${all:+,}$(echo ${line#*:})"
done <<<"$headers"; echo "$all"; }
case ${path%%\?*} in
  /apis/it.liqo.io/v1alpha1)
    answer='{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"it.liqo.io/v1alpha1"'
    answer+=',"resources":[{"name":"greetings","singularName":"greeting","kind":"Greeting"'
    answer+=',"namespaced":false,"verbs":["get"]}]}' ;;
  /apis/it.liqo.io/v1alpha1/greetings/*)
    name=${path##*/}
    answer='{"apiVersion":"it.liqo.io/v1alpha1","kind":"Greeting"'
    answer+=',"metadata":{"name":"'${name%%\?*}'"},"path":"'$path'"'
    answer+=',"user":"'$(header x-remote-user)'","groups":"'$(header x-remote-group)'"}' ;;
  *)
    status='404 Not Found' ;;
esac
"#;

/// Reads a greeting from the aggregated API by `kubectl get`.
async fn greet(namespace: &Namespace, words: &[&str]) -> Result<Value> {
    let answer = namespace.kubectl(&[&["get"], words].concat()).await?;
    serde_json::from_str(&answer).with_context(|| format!("no JSON: {answer}"))
}

/// Asserts that the server refuses clients other than the API server. Such clients could
/// impersonate users.
async fn refuses_others(namespace: &Namespace) -> Result<()> {
    let get = "curl -ksS -m 5 -H 'X-Remote-User: admin' https://server.aggregation.svc/apis";
    refusal(namespace.sh("server", get).await)?;
    until(
        Deadline::after(SOON),
        "the error of the server",
        async || {
            let logs = namespace.kubectl(&["logs", "server"]).await?;
            let reason = "peer did not return a certificate";
            ensure!(logs.contains(reason), "{logs}");
            Ok(())
        },
    )
    .await
}
