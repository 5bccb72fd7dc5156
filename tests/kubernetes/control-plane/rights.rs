//! Tests of the limits for the owner of a single namespace, and for the controller manager's token.
//! The chart's RBAC rules and admission policies set these limits.

pub(crate) mod attack;
mod consumers;
mod hostile;
mod namespaces;
mod reflection;
mod virtual_kubelets;

use crate::fixture::{Fixture, LIQO, Suite, parallel};
use anyhow::Result;
use attack::{Refusal, Request, User};
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        an_owner_of_a_namespace_cannot_make_it_a_tenant_namespace,
        an_ip_gives_its_creator_no_rights_on_services,
        the_managers_token_reads_no_secrets_outside_of_tenant_namespaces,
        the_managers_token_binds_its_role_in_tenant_namespaces_only,
        the_managers_token_changes_no_service_of_a_user,
    );
    consumers::add(suite);
    hostile::add(suite);
    namespaces::add(suite);
    reflection::add(suite);
    virtual_kubelets::add(suite);
}

/// The names of the ValidatingAdmissionPolicies.
const TENANT_LABELS: &str = "liqo-tenant-namespaces";
const TEMPLATES: &str = "liqo-ip-services";
const BINDINGS: &str = "liqo-controller-manager-bindings";
const SECRETS: &str = "liqo-controller-manager-secrets";
const SERVICES: &str = "liqo-controller-manager-services";

/// The ClusterRole that the manager binds. The RoleBindings have the same name.
const ROLE: &str = "liqo-controller-manager-tenant";
const MANAGER: &str = "liqo-controller-manager";

/// A namespace and its owner. The owner has all rights in this namespace, and no other rights.
struct Owned {
    namespace: String,
    owner: User,
    administrator: User,
}

impl Owned {
    async fn create(fixture: &Fixture, namespace: &str) -> Result<Self> {
        let client = fixture.namespace(namespace).await?;
        let user = format!("owner-of-{namespace}");
        let subject = json!({"kind": "User", "apiGroup": RBAC, "name": user});
        let binding = binding(namespace, "owner", "cluster-admin", subject);
        manifest::apply(&client, &[binding], None).await?;
        let subject = Subject {
            user: &user,
            group: None,
        };

        Ok(Self {
            namespace: namespace.to_owned(),
            owner: User(fixture.control_plane.client_as(subject).await?),
            administrator: User(client),
        })
    }

    /// Returns a request that changes the labels of the namespace.
    fn labels(&self, subresource: Option<&'static str>, labels: &Value) -> Request {
        Request::Merge {
            kind: "Namespace",
            namespace: None,
            name: self.namespace.clone(),
            subresource,
            patch: json!({"metadata": {"labels": labels}}),
        }
    }

    fn ip(&self, name: &str, spec: &Value) -> Request {
        Request::Create(json!({
            "apiVersion": "ipam.liqo.io/v1alpha1",
            "kind": "IP",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }))
    }
}

async fn an_owner_of_a_namespace_cannot_make_it_a_tenant_namespace(
    fixture: &'static Fixture,
) -> Result<()> {
    let owned = Owned::create(fixture, "owned-labels").await?;
    let refusal = Refusal::Policy(TENANT_LABELS);
    let tenant = json!({"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": "milan"});
    let opt_in = json!({"ipam.liqo.io/allow-internal-addresses": "true"});

    for labels in [&tenant, &opt_in] {
        for subresource in [None, Some("status")] {
            let request = owned.labels(subresource, labels);
            owned
                .owner
                .may_not(&owned.administrator, &request, refusal)
                .await?;
        }
    }
    // The administrator may set the labels. Afterwards the owner may neither change the cluster id
    // of the peer nor remove the label of a tenant namespace.
    label(fixture, &owned.namespace, &tenant).await?;
    for labels in [
        json!({"liqo.io/remote-cluster-id": "another"}),
        json!({"liqo.io/tenant-namespace": null}),
    ] {
        let request = owned.labels(None, &labels);
        owned
            .owner
            .may_not(&owned.administrator, &request, refusal)
            .await?;
    }

    owned
        .owner
        .may(&owned.labels(None, &json!({"team": "b"})))
        .await?;
    Ok(())
}

async fn an_ip_gives_its_creator_no_rights_on_services(fixture: &'static Fixture) -> Result<()> {
    let owned = Owned::create(fixture, "owned-ips").await?;
    let refusal = Refusal::Policy(TEMPLATES);
    let ip = |ip: &str, template: Value| {
        let spec = json!({"ip": ip, "serviceTemplate": template});
        owned.ip("printer", &spec)
    };
    let ports = json!([{"name": "http", "port": 80}]);
    let right = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"type": "ClusterIP", "ports": ports}});
    // This request is allowed. Each refused request below differs from this request in one field.
    owned.owner.may(&ip("192.0.2.9", right.clone())).await?;

    for (field, value) in [
        ("externalIPs", json!(["203.0.113.7"])),
        ("type", json!("NodePort")),
        ("type", json!("LoadBalancer")),
        ("selector", json!({"app": "victim"})),
        ("clusterIP", json!("None")),
        ("ports", json!([{"port": 80, "nodePort": 30080}])),
    ] {
        let mut template = right.clone();
        template["spec"][field] = value;
        owned
            .owner
            .is_refused(&ip("192.0.2.9", template), refusal)
            .await?;
    }
    for metadata in [
        json!({"annotations": {"a": "b"}}),
        json!({"labels": {"networking.liqo.io/component": "gateway"}}),
    ] {
        let mut template = right.clone();
        template["metadata"] = metadata;
        owned
            .owner
            .is_refused(&ip("192.0.2.9", template), refusal)
            .await?;
    }
    for address in [
        "10.244.1.2",
        "10.96.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
    ] {
        owned
            .owner
            .is_refused(&ip(address, right.clone()), refusal)
            .await?;
        let plain = owned.ip("plain", &json!({"ip": address}));
        owned.owner.may(&plain).await?;
    }

    Ok(())
}

async fn the_managers_token_reads_no_secrets_outside_of_tenant_namespaces(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    let secret = |namespace: &str, type_: &str| {
        let annotations = json!({"kubernetes.io/service-account.name": "default"});
        Request::Create(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "stolen", "namespace": namespace, "annotations": annotations},
            "type": type_,
        }))
    };
    let list = |namespace: Option<&str>| Request::List {
        kind: "Secret",
        namespace: namespace.map(str::to_owned),
    };

    for namespace in [Some("kube-system"), Some("default"), Some(LIQO), None] {
        manager
            .may_not(&administrator, &list(namespace), Refusal::Rbac)
            .await?;
    }
    for namespace in ["kube-system", "default"] {
        let request = secret(namespace, "Opaque");
        manager
            .may_not(&administrator, &request, Refusal::Rbac)
            .await?;
    }
    let tenant = "tenant-secrets";
    bind_manager(fixture, &manager, tenant).await?;
    let token = "kubernetes.io/service-account-token";
    for request in [
        secret(tenant, token),
        secret(LIQO, token),
        secret(LIQO, "Opaque"),
    ] {
        manager
            .may_not(&administrator, &request, Refusal::Policy(SECRETS))
            .await?;
    }
    // The requests that the manager needs are allowed.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "liqo-gateway-keys", "namespace": LIQO},
    });
    let client = fixture.control_plane.client().await?;
    manifest::apply(&client, &[secret], None).await?;
    manager.may(&list(Some(tenant))).await?;
    let keys = Request::Get {
        kind: "Secret",
        namespace: LIQO.to_owned(),
        name: "liqo-gateway-keys".to_owned(),
    };
    manager.may(&keys).await
}

async fn the_managers_token_binds_its_role_in_tenant_namespaces_only(
    fixture: &'static Fixture,
) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    fixture.namespace("unbound").await?;
    let tenant = "tenant-bindings";
    bind_manager(fixture, &manager, tenant).await?;
    let own = service_account();
    let binding = |namespace: &str, name: &str, role: &str, subject: Value| {
        Request::Create(binding(namespace, name, role, subject))
    };
    let foreign = json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"});
    let policy = Refusal::Policy(BINDINGS);

    for request in [
        binding("kube-system", ROLE, ROLE, own.clone()),
        binding("unbound", ROLE, ROLE, own.clone()),
        binding(LIQO, ROLE, ROLE, own.clone()),
        binding(tenant, "another", ROLE, foreign.clone()),
        binding(tenant, "another", ROLE, own.clone()),
        // RBAC allows this binding, because the manager has all rights of its own role. Only the
        // policy refuses the binding.
        binding(tenant, "another", MANAGER, foreign.clone()),
    ] {
        manager.is_refused(&request, policy).await?;
    }
    // The policy also applies to the administrator.
    administrator
        .is_refused(&binding("kube-system", ROLE, ROLE, own.clone()), policy)
        .await?;
    administrator
        .is_refused(&binding(tenant, "another", ROLE, foreign.clone()), policy)
        .await?;
    // The policy ignores bindings of other roles, so only RBAC refuses the following bindings.
    let view = binding("kube-system", "another", "view", foreign.clone());
    manager
        .may_not(&administrator, &view, Refusal::Rbac)
        .await?;
    let admin = binding(tenant, ROLE, "cluster-admin", own.clone());
    manager.is_refused(&admin, Refusal::Rbac).await?;
    let everywhere = Request::Create(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "stolen"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [own],
    }));
    manager
        .may_not(&administrator, &everywhere, Refusal::Rbac)
        .await
}

async fn the_managers_token_changes_no_service_of_a_user(fixture: &'static Fixture) -> Result<()> {
    let administrator = administrator(fixture).await?;
    let manager = manager(fixture).await?;
    let user = fixture.namespace("of-a-user").await?;
    let service = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "of-a-user", "labels": labels},
            "spec": {"ports": [{"port": 80}]},
        })
    };
    let slice = |name: &str, labels: Value| {
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": "of-a-user", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [],
        })
    };
    let managed = || json!({"liqo.io/managed": "true"});
    let policy = Refusal::Policy(SERVICES);
    manifest::apply(
        &user,
        &[service("web", json!({})), slice("web", json!({}))],
        None,
    )
    .await?;

    for kind in ["Service", "EndpointSlice"] {
        let (namespace, name) = ("of-a-user".to_owned(), "web".to_owned());
        // The existing object lacks the label. A request that adds the label is therefore also
        // refused.
        let patch = json!({"metadata": {"labels": managed()}});
        let change = Request::Merge {
            kind,
            namespace: Some(namespace.clone()),
            name: name.clone(),
            subresource: None,
            patch,
        };
        let delete = Request::Delete {
            kind,
            namespace: Some(namespace),
            name,
        };
        for request in [change, delete] {
            manager.may_not(&administrator, &request, policy).await?;
        }
    }
    for unlabelled in [service("new", json!({})), slice("new", json!({}))] {
        let request = Request::Create(unlabelled);
        manager.may_not(&administrator, &request, policy).await?;
    }
    for labelled in [service("new", managed()), slice("new", managed())] {
        manager.may(&Request::Create(labelled)).await?;
    }
    Ok(())
}

async fn administrator(fixture: &Fixture) -> Result<User> {
    Ok(User(fixture.control_plane.client().await?))
}

async fn manager(fixture: &Fixture) -> Result<User> {
    Ok(User(fixture.control_plane.client_of(LIQO, MANAGER).await?))
}

/// Creates a tenant namespace, in which the manager binds its role.
async fn bind_manager(fixture: &Fixture, manager: &User, namespace: &str) -> Result<()> {
    fixture.namespace(namespace).await?;
    label(
        fixture,
        namespace,
        &json!({"liqo.io/tenant-namespace": "true"}),
    )
    .await?;
    let binding = binding(namespace, ROLE, ROLE, service_account());
    manager.may(&Request::Create(binding.clone())).await?;

    manifest::apply(&fixture.control_plane.client().await?, &[binding], None).await
}

/// Sets labels of a namespace as the administrator.
async fn label(fixture: &Fixture, namespace: &str, labels: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels},
    });
    manifest::apply(&fixture.control_plane.client().await?, &[object], None).await
}

fn service_account() -> Value {
    json!({"kind": "ServiceAccount", "name": MANAGER, "namespace": LIQO})
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn binding(namespace: &str, name: &str, role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}
