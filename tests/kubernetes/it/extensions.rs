//! Tests of API extensions and of API limits: custom resources, webhooks, aggregated APIs,
//! certificates, quotas and pod security.

mod aggregation;
mod certificate;
mod server;
mod webhook;

use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, SOON, until};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_custom_resource_is_validated_by_its_schema,
        a_restricted_namespace_refuses_a_privileged_pod_and_runs_an_unprivileged_one,
        a_quota_refuses_what_exceeds_it,
    );
    aggregation::add(suite);
    certificate::add(suite);
    webhook::add(suite);
}

async fn a_custom_resource_is_validated_by_its_schema(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("custom-resource").await?;
    let cluster = namespace.clone();
    cleanup::defer("CRD letters.test.liqo.io", async move || {
        let delete = [
            "delete",
            "crd",
            "letters.test.liqo.io",
            "--ignore-not-found",
        ];
        cluster.kubectl(&delete).await.map(drop)
    });
    namespace.apply(LETTERS).await?;
    namespace
        .wait("crd/letters.test.liqo.io", "Established")
        .await?;

    let write = async |name: &str, words: &str| {
        let letter = format!(
            "
apiVersion: test.liqo.io/v1
kind: Letter
metadata: {{name: {name}}}
spec: {{words: {words}}}
"
        );
        create(&namespace, &letter).await
    };
    write("short", "3").await?;
    let negative = refusal(write("negative", "-1").await)?;
    let wordy = refusal(write("wordy", "many").await)?;

    let stored = namespace.get("letter/short", "{.spec}").await?;
    ensure!(stored == r#"{"language":"latin","words":3}"#, "{stored}");
    ensure!(
        negative.contains("spec.words: Invalid value") && negative.contains("the minimum is 0"),
        "{negative}"
    );
    ensure!(wordy.contains("must be of type integer"), "{wordy}");
    let status = r#"{"spec": {"words": 5}, "status": {"read": true}}"#;
    let patch = "patch letter short --subresource=status --type=merge -p";
    let patch: Vec<_> = patch.split(' ').chain([status]).collect();
    namespace.kubectl(&patch).await?;
    let both = "{.spec.words} {.status.read}";
    let both = namespace.get("letter/short", both).await?;
    ensure!(both == "3 true", "{both}");
    Ok(())
}

const LETTERS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: letters.test.liqo.io
spec:
  group: test.liqo.io
  scope: Namespaced
  names: {plural: letters, singular: letter, kind: Letter}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [words]
              properties:
                words:
                  type: integer
                  x-kubernetes-validations:
                    - {rule: self >= 0, message: the minimum is 0 than nothing}
                language: {type: string, default: latin}
            status:
              type: object
              properties:
                read: {type: boolean}
";

async fn a_restricted_namespace_refuses_a_privileged_pod_and_runs_an_unprivileged_one(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("pod-security").await?;
    let label = "label namespace pod-security pod-security.kubernetes.io/enforce=restricted";
    namespace
        .kubectl(&label.split(' ').collect::<Vec<_>>())
        .await?;

    let privileged = refusal(create(&namespace, PRIVILEGED).await)?;
    create(&namespace, UNPRIVILEGED).await?;

    for words in [
        "violates PodSecurity \"restricted:latest\"",
        "must not set securityContext.privileged=true",
    ] {
        ensure!(privileged.contains(words), "{privileged}");
    }
    namespace.wait("pod/unprivileged", "Ready").await?;
    let user = namespace.sh("unprivileged", "id -u").await?;
    ensure!(user == "1000\n", "{user}");
    let seccomp = namespace
        .sh("unprivileged", "grep Seccomp: /proc/self/status")
        .await?;
    ensure!(seccomp == "Seccomp:\t2\n", "no filter: {seccomp}");
    Ok(())
}

const PRIVILEGED: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: privileged
spec:
  containers:
    - name: privileged
      image: localhost/tools:latest
      securityContext:
        privileged: true
";

const UNPRIVILEGED: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: unprivileged
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: unprivileged
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command: [sleep, infinity]
      securityContext:
        runAsUser: 1000
        runAsNonRoot: true
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
        seccompProfile: {type: RuntimeDefault}
";

async fn a_quota_refuses_what_exceeds_it(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("quota").await?;
    let quota = "create quota few --hard=configmaps=2";
    namespace
        .kubectl(&quota.split(' ').collect::<Vec<_>>())
        .await?;
    until(
        Deadline::after(SOON),
        "the usage of the quota",
        async || {
            let used = namespace
                .get("quota/few", "{.status.used.configmaps}")
                .await?;
            // The quota counts the ConfigMap `kube-root-ca.crt`, which every namespace has.
            ensure!(used == "1", "{used:?}");
            Ok(())
        },
    )
    .await?;
    let configmap = async |name: &str| namespace.kubectl(&["create", "configmap", name]).await;

    configmap("first").await?;
    let second = refusal(configmap("second").await)?;

    let expected =
        "exceeded quota: few, requested: configmaps=1, used: configmaps=2, limited: configmaps=2";
    ensure!(second.contains(expected), "{second}");
    namespace.kubectl(&["delete", "configmap", "first"]).await?;
    until(Deadline::after(SOON), "room in the quota", async || {
        configmap("second").await.map(drop)
    })
    .await?;
    Ok(())
}

/// Creates an object by a single `kubectl create`, without retries.
async fn create(namespace: &Namespace, yaml: &str) -> Result<String> {
    let words = ["create", "-f", "-"];
    namespace.kubectl_with(&words, yaml).await
}

/// Returns the error of a request that must be refused.
fn refusal(outcome: Result<String>) -> Result<String> {
    let error = outcome.err().context("the request was accepted")?;
    Ok(format!("{error:#}"))
}
