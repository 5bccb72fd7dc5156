//! One side of a peering: the authentication controller, with a cluster in memory and virtual time.

use crate::authentication::{ApiServerSettings, AuthenticationController, Grants, Settings};
use control_api::{Identity, Tenant};
use control_credentials::KeyType;
use control_runtime::simulation::{Sent, Simulation};
use control_runtime::{Action, Cluster, Key, Request, Resource};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for the requests that a change causes.
pub(super) const MOMENT: Duration = Duration::from_secs(2);

/// Time by which Kubernetes' signer dates certificates back.
const BACKDATED: Duration = Duration::from_secs(300);

/// The user that the controller is.
const USER: &str = "system:serviceaccount:liqo:liqo-controller-manager";

/// A cluster with its authentication controller.
pub(super) struct Side {
    simulation: Simulation,
    elapsed: Duration,
    signer: Issuer<'static, KeyPair>,
}

pub(super) fn tenant_namespace(peer: &str) -> String {
    format!("liqo-tenant-{peer}")
}

impl Side {
    /// Creates a cluster of this ID. A nonce lives for seven hours.
    pub(super) fn new(id: &str) -> Self {
        Self::with_seed(id, 7)
    }

    /// Creates a cluster whose requests have the order that `seed` determines.
    pub(super) fn with_seed(id: &str, seed: u64) -> Self {
        Self::with_nonce_ttl(id, seed, Duration::from_secs(7 * 3600))
    }

    /// Creates a cluster whose unused nonces expire after a time.
    pub(super) fn with_nonce_ttl(id: &str, seed: u64, nonce_ttl: Duration) -> Self {
        let settings = Settings {
            namespace: "liqo".to_owned(),
            tenant_namespaces: Vec::new(),
            key_type: KeyType::Ed25519,
            nonce_ttl,
            api_server: ApiServerSettings::default(),
            grants: Grants {
                is_default_class_enabled: true,
                has_storage: true,
                defaults: [("cpu", "4"), ("memory", "8Gi")]
                    .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
                    .into(),
                node_labels: [("region".to_owned(), "B".to_owned())].into(),
                ..Grants::default()
            },
        };
        let make = move || AuthenticationController::new(settings.clone(), USER.to_owned());
        let mut simulation = Simulation::new(seed).host(make).replicas(2);
        let local = simulation.local();
        local
            .set_defaults::<CertificateSigningRequest>(|csr| csr["spec"]["username"] = json!(USER));
        local.put_namespace("liqo");
        local.put::<ConfigMap>(json!({
            "metadata": {"name": "id", "namespace": "liqo", "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
            "data": {"CLUSTER_ID": id},
        }));
        let signer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());

        let mut side = Self {
            simulation,
            elapsed: Duration::ZERO,
            signer,
        };
        side.put_control_plane();
        // Certificates are dated back, and their times do not reach back before 1970.
        side.run(BACKDATED);

        side
    }

    /// Creates the node of the API server.
    pub(super) fn put_control_plane(&mut self) {
        self.simulation.local().put::<Node>(json!({
            "metadata": {"name": "node", "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
        }));
    }

    pub(super) fn remove_control_plane(&mut self) {
        self.simulation
            .local()
            .remove::<Node>(&Key::cluster("node"));
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Runs for a time.
    pub(super) fn run(&mut self, time: Duration) {
        self.simulation.pass(time);
        self.elapsed += time;
    }

    /// Runs while replicas crash, the leader changes and the API server is away, and then until all is quiet.
    pub(super) fn run_with_faults(&mut self) {
        for leader in [1, 0, 1, 0] {
            self.run(Duration::from_millis(3));
            self.simulation.crash(leader);
            self.run(Duration::from_millis(2));
            self.simulation.hand_over(leader);
            self.run(Duration::from_millis(2));
            self.simulation.partition(&Cluster::Local);
            self.run(Duration::from_millis(5));
            self.simulation.heal(&Cluster::Local);
        }
        self.run(Duration::from_secs(120));
    }

    /// Makes the other replica the leader.
    pub(super) fn hand_over(&mut self) {
        self.lead(1);
    }

    /// Makes a replica the leader.
    pub(super) fn lead(&mut self, replica: usize) {
        self.simulation.hand_over(replica);
    }

    /// Creates the tenant namespace of a peer, and the manager's rights there.
    pub(super) fn put_peer(&mut self, peer: &str) {
        self.put_namespace(peer);
        self.put_manager_binding(peer);
    }

    /// Creates the tenant namespace of a peer.
    pub(super) fn put_namespace(&mut self, peer: &str) {
        let name = tenant_namespace(peer);
        let labels = json!({"liqo.io/remote-cluster-id": peer, "liqo.io/tenant-namespace": "true"});
        let local = self.simulation.local();
        local.put::<Namespace>(json!({"metadata": {"name": name, "labels": labels}}));
    }

    /// Gives the manager its rights in the tenant namespace of a peer.
    pub(super) fn put_manager_binding(&mut self, peer: &str) {
        let name = tenant_namespace(peer);
        let local = self.simulation.local();
        let role = "liqo-controller-manager-tenant";
        local.put::<RoleBinding>(json!({
            "metadata": {"name": role, "namespace": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"}],
        }));
    }

    /// Creates or changes an object, as a user does.
    pub(super) fn put<K: kube::Resource<DynamicType = ()>>(&mut self, mut object: Value) {
        let key = Key::new(
            object["metadata"]["namespace"].as_str().unwrap_or_default(),
            object["metadata"]["name"].as_str().unwrap_or_default(),
        );
        match self.object::<K>(&key) {
            Some(present) if object["status"].is_null() => {
                object["status"] = present["status"].clone();
            }
            Some(_) => {}
            None => object["metadata"]["creationTimestamp"] = json!(self.time()),
        }
        self.simulation.local().put::<K>(object);
    }

    /// Sets fields of the CertificateSigningRequests that are created.
    pub(super) fn set_request_defaults(&mut self, set: fn(&mut Value)) {
        self.simulation
            .local()
            .set_defaults::<CertificateSigningRequest>(set);
    }

    pub(super) fn remove<K: kube::Resource<DynamicType = ()>>(&mut self, key: &Key) {
        self.simulation.local().remove::<K>(key);
    }

    /// Creates an empty nonce, as `liqoctl` does.
    pub(super) fn put_nonce(&mut self, peer: &str) {
        self.put_nonce_with(peer, &json!({}));
    }

    /// Creates a nonce with these data.
    pub(super) fn put_nonce_with(&mut self, peer: &str, data: &Value) {
        let labels = json!({"liqo.io/nonce": "true"});
        self.put_secret(peer, "liqo-nonce", &labels, data);
    }

    /// Creates a nonce to be signed, as `liqoctl` does.
    pub(super) fn put_signed_nonce(&mut self, peer: &str, nonce: &[u8]) {
        let data = json!({"nonce": ByteString(nonce.to_vec())});
        self.put_secret(
            peer,
            "liqo-signed-nonce",
            &json!({"liqo.io/signed-nonce": "true"}),
            &data,
        );
    }

    fn put_secret(&mut self, peer: &str, name: &str, labels: &Value, data: &Value) {
        let mut labels = labels.clone();
        labels["liqo.io/remote-cluster-id"] = json!(peer);
        let created = self.time();
        self.simulation.local().put::<Secret>(json!({
            "metadata": {
                "name": name,
                "namespace": tenant_namespace(peer),
                "labels": labels,
                "creationTimestamp": created,
            },
            "data": data,
        }));
    }

    pub(super) fn remove_secret(&mut self, peer: &str, name: &str) {
        self.simulation
            .local()
            .remove::<Secret>(&Key::new(tenant_namespace(peer), name));
    }

    /// Creates or changes the Tenant of a peer.
    pub(super) fn put_tenant(&mut self, peer: &str, spec: &Value) {
        self.put_tenant_named(peer, peer, spec);
    }

    pub(super) fn put_tenant_named(&mut self, peer: &str, name: &str, spec: &Value) {
        let key = Key::new(tenant_namespace(peer), name);
        let created = self.time();
        let local = self.simulation.local();
        let mut object = local.get::<Tenant>(&key).cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": "authentication.liqo.io/v1beta1",
                "kind": "Tenant",
                "metadata": {"name": key.name, "namespace": key.namespace, "creationTimestamp": created},
            })
        });
        object["spec"] = spec.clone();
        local.put::<Tenant>(object);
    }

    /// Requests the deletion of a Tenant, which its finalizer delays.
    pub(super) fn delete_tenant(&mut self, peer: &str) {
        self.simulation
            .local()
            .remove::<Tenant>(&Key::new(tenant_namespace(peer), peer));
    }

    /// Creates the Identity of this cluster at a provider, as `liqoctl` does.
    pub(super) fn put_identity(&mut self, peer: &str, name: &str) {
        let certificate = self.certificate(name);
        self.put_issued(peer, &certificate);
    }

    /// Creates the Identity with a certificate that the provider has issued.
    pub(super) fn put_issued(&mut self, peer: &str, certificate: &ByteString) {
        self.simulation.local().put::<Identity>(json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "Identity",
            "metadata": {"name": format!("controlplane-{peer}"), "namespace": tenant_namespace(peer)},
            "spec": {
                "clusterID": peer,
                "type": "ControlPlane",
                "namespace": "liqo-tenant-rome",
                "authParams": {
                    "apiServer": "https://192.0.2.2:6443",
                    "signedCRT": certificate,
                },
            },
        }));
    }

    /// Returns a certificate of the key of this cluster.
    pub(super) fn certificate(&mut self, name: &str) -> ByteString {
        let pem = self
            .secret_in("liqo", "authentication-keys", "privateKey")
            .unwrap();
        let pair = KeyPair::from_pem(str::from_utf8(&pem).unwrap()).unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        ByteString(params.self_signed(&pair).unwrap().pem().into_bytes())
    }

    /// Creates a ClusterRoleBinding of a user.
    pub(super) fn put_binding(&mut self, name: &str, user: &str) {
        self.simulation.local().put::<ClusterRoleBinding>(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }));
    }

    /// Changes the RoleBindings of consumers.
    pub(super) fn edit_bindings(&mut self, edit: impl Fn(&mut Value)) {
        for mut binding in self.objects::<RoleBinding>() {
            edit(&mut binding);
            self.simulation.local().put::<RoleBinding>(binding);
        }
    }

    /// Signs the approved requests, as Kubernetes' signer does.
    pub(super) fn sign(&mut self, lifetime: Duration) {
        self.sign_at(self.elapsed, lifetime);
    }

    /// Signs the approved requests by a clock that shows `now`.
    pub(super) fn sign_at(&mut self, now: Duration, lifetime: Duration) {
        for mut csr in self.objects::<CertificateSigningRequest>() {
            let is_approved = csr["status"]["conditions"][0]["type"] == "Approved";
            if !is_approved || !csr["status"]["certificate"].is_null() {
                continue;
            }
            let pem: ByteString = serde_json::from_value(csr["spec"]["request"].clone()).unwrap();
            let pem = String::from_utf8(pem.0).unwrap();
            let mut params = CertificateSigningRequestParams::from_pem(&pem).unwrap();
            params.params.not_before = date_time_ymd(1970, 1, 1) + now - BACKDATED;
            params.params.not_after = date_time_ymd(1970, 1, 1) + now + lifetime;
            let certificate = params.signed_by(&self.signer).unwrap().pem();
            csr["status"]["certificate"] = json!(ByteString(certificate.into_bytes()));
            self.simulation
                .local()
                .put::<CertificateSigningRequest>(csr);
        }
    }

    /// Returns a value of a Secret in the tenant namespace of a peer.
    pub(super) fn secret(&mut self, peer: &str, name: &str, key: &str) -> Option<Vec<u8>> {
        self.secret_in(&tenant_namespace(peer), name, key)
    }

    pub(super) fn secret_in(&mut self, namespace: &str, name: &str, key: &str) -> Option<Vec<u8>> {
        let secret = self.object::<Secret>(&Key::new(namespace, name))?;
        let value: ByteString = serde_json::from_value(secret["data"][key].clone()).ok()?;
        Some(value.0)
    }

    pub(super) fn object<K>(&mut self, key: &Key) -> Option<Value>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        self.simulation.local().get::<K>(key).cloned()
    }

    /// Returns the status of the Tenant of a peer.
    pub(super) fn status(&mut self, peer: &str) -> Value {
        let tenant = self.object::<Tenant>(&Key::new(tenant_namespace(peer), peer));
        tenant
            .map(|tenant| tenant["status"].clone())
            .unwrap_or_default()
    }

    /// Returns the objects of a type, without the RoleBindings of the manager.
    pub(super) fn objects<K: kube::Resource<DynamicType = ()>>(&mut self) -> Vec<Value> {
        let objects = self.simulation.local().all::<K>().into_iter().cloned();
        let is_own = |it: &Value| it["metadata"]["name"] == "liqo-controller-manager-tenant";
        objects.filter(|it| !is_own(it)).collect()
    }

    pub(super) fn count<K: kube::Resource<DynamicType = ()>>(&mut self) -> usize {
        self.objects::<K>().len()
    }

    /// Returns the only object of a type.
    pub(super) fn only<K: kube::Resource<DynamicType = ()>>(&mut self) -> Value {
        let objects = self.objects::<K>();
        assert_eq!(objects.len(), 1, "{objects:?}");
        objects[0].clone()
    }

    /// Returns the number of writes to objects of a type.
    pub(super) fn writes<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter();
        log.filter(|sent| {
            sent.request.object().map(|it| &it.resource) == Some(&Resource::of::<K>())
        })
        .count()
    }

    /// Returns the number of objects of a type that were created.
    pub(super) fn creations<K: kube::Resource<DynamicType = ()>>(&self) -> usize {
        let log = self.simulation.log().iter().map(|sent| &sent.request);
        let of_type = log.filter(|request| {
            request.object().map(|it| &it.resource) == Some(&Resource::of::<K>())
        });
        of_type
            .filter(|request| {
                matches!(request, Request::Write(write) if matches!(write.action, Action::Create(_)))
            })
            .count()
    }

    /// Returns the reasons of the Events.
    pub(super) fn reasons(&self) -> Vec<&'static str> {
        let events = self.simulation.events(0).iter();
        events.map(|event| event.reason).collect()
    }

    /// Returns the position of the first write to an object of a type, or to its subresource.
    pub(super) fn position<K: kube::Resource<DynamicType = ()>>(
        &self,
        subresource: Option<&str>,
    ) -> Option<usize> {
        let mut log = self.simulation.log().iter();
        log.position(|sent| match &sent.request {
            Request::Write(write) => {
                write.object.resource == Resource::of::<K>() && write.subresource == subresource
            }
            Request::Read(_) | Request::Probe(_) => false,
        })
    }

    pub(super) fn redundant(&self) -> Vec<&Sent> {
        self.simulation.redundant()
    }

    /// Returns the time as Kubernetes writes it.
    pub(super) fn time(&self) -> String {
        let seconds = i64::try_from(self.elapsed.as_secs()).unwrap();
        k8s_openapi::jiff::Timestamp::from_second(seconds)
            .unwrap()
            .to_string()
    }
}
