//! Tests of the limits for Services, Ingresses and claims that the virtual kubelets of a consumer write.

use super::attack::{Refusal, Request, User};
use super::namespaces::{OF_CONSUMER, of_consumer};
use super::{RBAC, administrator, binding, label};
use crate::fixture::{Fixture, LIQO, Suite, parallel};
use anyhow::Result;
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_consumer_reflects_no_field_that_affects_other_namespaces,
        a_tenant_policy_limits_services_and_ingresses,
    );
}

/// The names of the ValidatingAdmissionPolicies.
const FIELDS: Refusal<'_> = Refusal::Policy("liqo-consumer-reflection");
const LIMITS: Refusal<'_> = Refusal::Policy("liqo-consumer-limits");

/// Objects in a namespace of the consumer `buyer`.
struct Reflected(&'static str);

impl Reflected {
    /// Creates the namespace, and returns a virtual kubelet of the consumer.
    async fn create(&self, fixture: &Fixture) -> Result<User> {
        of_consumer(fixture, self.0).await?;
        let group = json!({"apiGroup": RBAC, "kind": "Group", "name": "buyer"});
        let binding = binding(self.0, "liqo-tenant-buyer", OF_CONSUMER, group);
        manifest::apply(&fixture.control_plane.client().await?, &[binding], None).await?;
        let subject = Subject {
            user: "virtual-kubelet-of-a-buyer",
            group: Some("buyer"),
        };

        Ok(User(fixture.control_plane.client_as(subject).await?))
    }

    fn object(&self, (api, kind): (&str, &str), annotations: &Value, spec: &Value) -> Request {
        Request::Create(json!({
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": "new", "namespace": self.0, "annotations": annotations},
            "spec": spec,
        }))
    }

    /// Returns a Service of a type.
    fn service(&self, type_: &str) -> Request {
        let spec = match type_ {
            "ExternalName" => json!({"type": type_, "externalName": "rome.example"}),
            _ => json!({"type": type_, "ports": [{"port": 80}]}),
        };
        self.object(("v1", "Service"), &Value::Null, &spec)
    }

    fn ingress(&self, annotations: &Value, spec: &Value) -> Request {
        self.object(("networking.k8s.io/v1", "Ingress"), annotations, spec)
    }

    /// Returns an Ingress with a rule for a host.
    fn host(&self, host: &str) -> Request {
        self.ingress(&Value::Null, &json!({"rules": [{"host": host}]}))
    }

    fn claim(&self, name: &str, volume: Option<&str>) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.0},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": volume,
            },
        })
    }
}

async fn a_consumer_reflects_no_field_that_affects_other_namespaces(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let reflected = Reflected("reflected-fields");
    let consumer = reflected.create(fixture).await?;
    // Kubernetes has bound this claim. The consumer changes its other fields.
    let bound = reflected.claim("bound", Some("volume"));
    manifest::apply(&administrator.0, &[bound], None).await?;
    let change = |patch: Value| Request::Merge {
        kind: "PersistentVolumeClaim",
        namespace: Some(reflected.0.to_owned()),
        name: "bound".to_owned(),
        subresource: None,
        patch,
    };
    let nginx = |key: &str, value: &str| {
        let annotations = json!({format!("nginx.ingress.kubernetes.io/{key}"): value});
        reflected.ingress(&annotations, &json!({"rules": [{"host": "rome.example"}]}))
    };
    let own = json!({
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "offloading.liqo.io/note": "a;b",
        "liqo.io/note": "a",
    });
    let class = |class: &str| json!({"ingressClassName": class, "rules": [{"host": "a"}]});
    // Kubernetes adds its finalizer to each claim. The consumer may send it, too.
    let mut protected = reflected.claim("new", None);
    protected["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    for allowed in [
        Request::Create(protected),
        reflected.service("ClusterIP"),
        reflected.service("NodePort"),
        reflected.service("LoadBalancer"),
        reflected.host("any.example"),
        reflected.ingress(&own, &json!({"rules": [{"host": "a"}]})),
        nginx("rewrite-target", "/$1"),
        Request::Create(reflected.claim("new", None)),
        change(json!({"metadata": {"labels": {"team": "a"}}})),
    ] {
        consumer.may(&allowed).await?;
    }

    for refused in [
        reflected.service("ExternalName"),
        reflected.ingress(&Value::Null, &class("internal")),
        reflected.ingress(&json!({"example.com/liqo.io": "a"}), &class("a")),
        nginx("server-snippet", "deny all;"),
        nginx("rewrite-target", "/ { }"),
        nginx("proxy-body-size", "1m\n"),
        Request::Create(reflected.claim("new", Some("volume"))),
    ] {
        consumer.may_not(&administrator, &refused, FIELDS).await?;
    }

    Ok(())
}

async fn a_tenant_policy_limits_services_and_ingresses(fixture: &'static Fixture) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let reflected = Reflected("reflected-limits");
    let consumer = reflected.create(fixture).await?;
    let policy = |name: &str, spec: Value| {
        json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "TenantPolicy",
            "metadata": {"name": name, "namespace": LIQO},
            "spec": spec,
        })
    };
    let policies = [
        policy(
            "buyer",
            json!({"serviceTypes": ["ClusterIP", "ExternalName"], "ingressHosts": ["*.buyer.example", "shop"]}),
        ),
        policy("buyer-without-limits", json!({})),
        policy("seller", json!({"serviceTypes": [], "ingressHosts": []})),
    ];
    manifest::apply(&administrator.0, &policies, None).await?;
    let name = async |name: &str| {
        let labels = json!({"liqo.io/remote-cluster-id": "buyer", "liqo.io/tenant-policy": name});
        label(fixture, reflected.0, &labels).await
    };

    name("buyer").await?;
    for allowed in [
        reflected.service("ClusterIP"),
        reflected.service("ExternalName"),
        reflected.host("a.buyer.example"),
        reflected.host("a.b.buyer.example"),
        reflected.host("*.buyer.example"),
        reflected.host("shop"),
    ] {
        consumer.may(&allowed).await?;
    }
    let backend = json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}});
    for refused in [
        reflected.service("NodePort"),
        reflected.service("LoadBalancer"),
        reflected.host("buyer.example"),
        reflected.host("a.buyer.example.com"),
        reflected.host("a.buyer-example"),
        reflected.host("shops"),
        reflected.ingress(&Value::Null, &backend),
        reflected.ingress(
            &Value::Null,
            &json!({"rules": [{"host": "shop"}, {"http": {"paths": [{
                "pathType": "Prefix", "path": "/", "backend": backend["defaultBackend"],
            }]}}]}),
        ),
    ] {
        consumer.may_not(&administrator, &refused, LIMITS).await?;
    }

    name("buyer-without-limits").await?;
    for allowed in [
        reflected.service("NodePort"),
        reflected.host("any.example"),
        reflected.ingress(&Value::Null, &backend),
    ] {
        consumer.may(&allowed).await?;
    }
    consumer
        .may_not(&administrator, &reflected.service("ExternalName"), LIMITS)
        .await
}
