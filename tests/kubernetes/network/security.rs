//! Tests of the limits for the owner of a single namespace, and for the controller manager's token.

mod attack;

use crate::fixture::{LIQO, Peering, SOON, Suite, connection, parallel};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use attack::{Refusal, Request, User};
use control_api::GatewayServer;
use k8s_openapi::ByteString;
use kube::Api;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        an_owner_of_a_namespace_cannot_make_it_a_tenant_namespace,
        an_owner_of_a_namespace_cannot_replace_objects_of_a_peer,
        an_ip_gives_its_creator_no_rights_on_services,
        the_managers_token_reads_no_secrets_outside_of_tenant_namespaces,
        the_managers_token_binds_its_role_in_tenant_namespaces_only,
        the_managers_token_changes_no_service_of_a_user,
    );
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
    namespace: Namespace,
    owner: User,
    administrator: User,
}

impl Owned {
    async fn create(cluster: &Cluster, name: &str) -> Result<Self> {
        let namespace = Namespace::create(cluster, name).await?;
        let user = format!("owner-of-{name}");
        let bind = [
            "create",
            "rolebinding",
            "owner",
            "--clusterrole=cluster-admin",
        ];
        let bind = [bind.as_slice(), &["--user", &user]].concat();
        namespace.kubectl(&bind).await?;
        let owned = Self {
            owner: User::named(cluster, &user).await?,
            administrator: User::administrator(cluster).await?,
            namespace,
        };
        // The authorizer watches RoleBindings, so the rights take effect with a delay.
        let harmless = owned.labels(None, &json!({"team": "a"}));
        until(Deadline::after(SOON), "the owner's rights", async || {
            owned.owner.may(&harmless).await
        })
        .await?;

        Ok(owned)
    }

    /// Returns a request that changes the labels of the namespace.
    fn labels(&self, subresource: Option<&'static str>, labels: &Value) -> Request {
        let name = self.namespace.name().to_owned();
        Request::Merge {
            kind: "Namespace",
            namespace: None,
            name,
            subresource,
            patch: json!({"metadata": {"labels": labels}}),
        }
    }

    fn object(&self, kind: &str, peer: &str, spec: &Value) -> Value {
        let group = if kind == "IP" {
            "ipam.liqo.io/v1alpha1"
        } else {
            "networking.liqo.io/v1beta1"
        };
        json!({
            "apiVersion": group,
            "kind": kind,
            "metadata": {
                "name": peer,
                "namespace": self.namespace.name(),
                "labels": {"liqo.io/remote-cluster-id": peer},
            },
            "spec": spec,
        })
    }

    /// Waits for an Event about an object of the namespace, with a note that contains `words`.
    async fn event(&self, kind: &str, reason: &str, words: &str) -> Result<()> {
        let what = format!("Event {reason} about a {kind}");
        let path = "jsonpath={range .items[*]}{.regarding.kind} {.reason} {.note}\n{end}";
        until(Deadline::after(SOON), &what, async || {
            let words_of = ["get", "events.events.k8s.io", "-o", path];
            let events = self.namespace.kubectl(&words_of).await?;
            let mut lines = events.lines();
            let start = format!("{kind} {reason} ");
            let found = lines.any(|line| line.starts_with(&start) && line.contains(words));
            ensure!(found, "{events}");
            Ok(())
        })
        .await
    }
}

async fn an_owner_of_a_namespace_cannot_make_it_a_tenant_namespace(
    peering: &'static Peering,
) -> Result<()> {
    let owned = Owned::create(&peering.rome, "owned-labels").await?;
    let refusal = Refusal::Policy(TENANT_LABELS);
    let tenant = json!({"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": MILAN});
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
    let text = json!({"metadata": {"labels": tenant}}).to_string();
    let name = owned.namespace.name();
    let patch = ["patch", "namespace", name, "--type=merge", "-p", &text];
    owned.namespace.kubectl(&patch).await?;
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

async fn an_owner_of_a_namespace_cannot_replace_objects_of_a_peer(
    peering: &'static Peering,
) -> Result<()> {
    let owned = Owned::create(&peering.milan, "owned-peer").await?;
    let before = services(&peering.milan).await?;
    let key = ByteString(vec![7; 32]);
    let endpoint = json!({"port": 51999, "serviceType": "LoadBalancer"});
    let remote = json!({"cidr": {"pod": ["10.9.0.0/16"], "external": ["10.99.0.0/16"]}});

    for peer in [ROME, "mallory"] {
        for (kind, spec) in [
            ("PublicKey", json!({"publicKey": key})),
            ("GatewayServer", json!({"endpoint": endpoint})),
            ("Configuration", json!({"remote": remote})),
        ] {
            let object = owned.object(kind, peer, &spec).to_string();
            let create = ["create", "-f", "-", "--as", "owner-of-owned-peer"];
            let created = owned.namespace.kubectl_with(&create, &object);
            created.await.context("the owner has the right")?;
            let words = if peer == ROME {
                "liqo-tenant-it-rome only"
            } else {
                "is not the tenant namespace of peer mallory"
            };
            owned.event(kind, "NotTenantNamespace", words).await?;
        }
    }

    let kept = format!("liqo-tenant-{ROME}");
    let servers: Api<GatewayServer> = Api::namespaced(peering.milan.client().await?, &kept);
    let server = servers.get(ROME).await?.status.context("no status")?;
    let ready = server.conditions.iter().find(|it| it.type_ == "Ready");
    ensure!(ready.is_some_and(|it| it.status == "True"), "{ready:?}");
    ensure!(
        services(&peering.milan).await? == before,
        "a Service was created"
    );
    let networks = ["get", "networks.ipam.liqo.io", "-o", "name"];
    let networks = owned.namespace.kubectl(&networks).await?;
    ensure!(networks.is_empty(), "{networks}");
    for (here, there) in [(&peering.milan, ROME), (&peering.rome, MILAN)] {
        let status = connection(here, there).await?.status.unwrap_or_default();
        ensure!(status.value.as_deref() == Some("Connected"), "{status:?}");
    }
    Ok(())
}

/// Returns the names of the Services in Liqo's namespace.
async fn services(cluster: &Cluster) -> Result<String> {
    let liqo = Namespace::existing(cluster, LIQO).await?;
    liqo.kubectl(&["get", "services", "-o", "name"]).await
}

async fn an_ip_gives_its_creator_no_rights_on_services(peering: &'static Peering) -> Result<()> {
    let owned = Owned::create(&peering.rome, "owned-ips").await?;
    let refusal = Refusal::Policy(TEMPLATES);
    let ip = |ip: &str, template: Value| {
        let spec = json!({"ip": ip, "serviceTemplate": template});
        Request::Create(owned.object("IP", "printer", &spec))
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
        let plain = owned.object("IP", "plain", &json!({"ip": address}));
        owned.owner.may(&Request::Create(plain)).await?;
    }

    // The policy cannot read the addresses of nodes, so the manager refuses a node's address.
    let node = peering.rome.node_specs()?;
    let node = node.first().context("no node")?.ip.to_string();
    let spec = json!({"ip": node, "serviceTemplate": right});
    let object = owned.object("IP", "node", &spec);
    owned
        .namespace
        .kubectl_with(&["create", "-f", "-"], &object.to_string())
        .await?;
    owned
        .event("IP", "ServiceTemplateRefused", "the address of a node")
        .await?;
    let made = ["get", "services,endpointslices", "-o", "name"];
    let made = owned.namespace.kubectl(&made).await?;
    ensure!(made.is_empty(), "{made}");
    Ok(())
}

async fn manager(cluster: &Cluster) -> Result<User> {
    let liqo = Namespace::existing(cluster, LIQO).await?;
    let token = liqo.kubectl(&["create", "token", MANAGER]).await?;
    User::with_token(cluster, token.trim()).await
}

async fn the_managers_token_reads_no_secrets_outside_of_tenant_namespaces(
    peering: &'static Peering,
) -> Result<()> {
    let cluster = &peering.rome;
    let administrator = User::administrator(cluster).await?;
    let manager = manager(cluster).await?;
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
    let tenant = format!("liqo-tenant-{MILAN}");
    let token = "kubernetes.io/service-account-token";
    for request in [
        secret(&tenant, token),
        secret(LIQO, token),
        secret(LIQO, "Opaque"),
    ] {
        manager
            .may_not(&administrator, &request, Refusal::Policy(SECRETS))
            .await?;
    }
    // The requests that the manager needs are allowed.
    manager.may(&list(Some(&tenant))).await?;
    let keys = Request::Get {
        kind: "Secret",
        namespace: LIQO.to_owned(),
        name: "liqo-gateway-keys".to_owned(),
    };
    manager.may(&keys).await
}

async fn the_managers_token_binds_its_role_in_tenant_namespaces_only(
    peering: &'static Peering,
) -> Result<()> {
    let cluster = &peering.rome;
    let administrator = User::administrator(cluster).await?;
    let manager = manager(cluster).await?;
    Namespace::create(cluster, "unbound").await?;
    let binding = |namespace: &str, name: &str, role: &str, subject: Value| {
        Request::Create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }))
    };
    let own = json!({"kind": "ServiceAccount", "name": MANAGER, "namespace": LIQO});
    let foreign = json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"});
    let tenant = format!("liqo-tenant-{MILAN}");
    let policy = Refusal::Policy(BINDINGS);

    for request in [
        binding("kube-system", ROLE, ROLE, own.clone()),
        binding("unbound", ROLE, ROLE, own.clone()),
        binding(LIQO, ROLE, ROLE, own.clone()),
        binding(&tenant, "another", ROLE, foreign.clone()),
        binding(&tenant, "another", ROLE, own.clone()),
        // RBAC allows this binding, because the manager has all rights of its own role. Only the
        // policy refuses the binding.
        binding(&tenant, "another", MANAGER, foreign.clone()),
    ] {
        manager.is_refused(&request, policy).await?;
    }
    // The policy also applies to the administrator.
    administrator
        .is_refused(&binding("kube-system", ROLE, ROLE, own.clone()), policy)
        .await?;
    administrator
        .is_refused(&binding(&tenant, "another", ROLE, foreign.clone()), policy)
        .await?;
    // The policy ignores bindings of other roles, so only RBAC refuses the following bindings.
    let view = binding("kube-system", "another", "view", foreign.clone());
    manager
        .may_not(&administrator, &view, Refusal::Rbac)
        .await?;
    let admin = binding(&tenant, ROLE, "cluster-admin", own.clone());
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

async fn the_managers_token_changes_no_service_of_a_user(peering: &'static Peering) -> Result<()> {
    let cluster = &peering.rome;
    let administrator = User::administrator(cluster).await?;
    let manager = manager(cluster).await?;
    let namespace = Namespace::create(cluster, "of-a-user").await?;
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
    for object in [service("web", json!({})), slice("web", json!({}))] {
        let create = ["create", "-f", "-"];
        namespace.kubectl_with(&create, &object.to_string()).await?;
    }

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
            namespace,
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
