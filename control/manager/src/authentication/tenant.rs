//! Tenants: the consumers of this cluster, their certificates and their rights.

use super::certificate::{CERTIFICATE, Issued, Requested, SECRET_PREFIX};
use super::item::WorkItem;
use super::nonce::{NONCE, bound_to, is_bound_to, value};
use super::objects::{
    BY_NAME, BY_PEER, BY_USER, Local, Refusal, label, label_peer, warn, whole_seconds,
};
use super::parameters::{ApiServerSettings, auth_params};
use super::seen::Seen;
use super::{binding, decision, leftovers};
use crate::network::Verdict;
use control_api::authentication::auth_params::AuthParams;
use control_api::authentication::tenant::{AuthzPolicy, TenantCondition};
use control_api::{Tenant, TenantStatus, labels};
use control_credentials::{PublicKey, Subject, request};
use control_runtime::{Action, Cluster, Entry, Env, Finalizer, Key, Plan, Protection, Ref, Write};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use std::time::Duration;

/// Delays the deletion of a Tenant until the consumer has no rights any more.
const FINALIZER: Finalizer = Finalizer {
    name: "tenant.liqo.io/finalizer",
    wait_max: Duration::from_secs(60),
};

/// Type of the condition of a Tenant whose certificate will not be renewed in time.
const CERTIFICATE_RENEWAL: &str = "CertificateRenewal";

/// Longest message of a condition, in bytes. A message may contain fields that the consumer writes.
const MESSAGE_LEN_MAX: usize = 1024;

/// Values with which certificates are issued.
pub(super) struct Issuer<'a> {
    /// Name of this process as a user of the API server.
    pub(super) user: &'a str,
    pub(super) api_server: &'a ApiServerSettings,
    pub(super) seen: &'a mut Seen,
    /// Whether the Secrets of the tenant namespace will be listed, but are not yet.
    pub(super) are_secrets_unknown: bool,
}

/// Plans the rights, the certificate and the status of a Tenant.
pub(super) fn plan(
    local: &Local<'_>,
    issuer: Issuer<'_>,
    key: &Key,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let object = Ref::of::<Tenant>(&Cluster::Local, key);
    let (Some(tenant), Some(entry)) = (local.tenants.get(key), local.cache.entry(&object)) else {
        return plan;
    };
    let peer = tenant.spec.cluster_id.as_deref().unwrap_or_default();
    let is_tolerated = tenant.spec.authz_policy == Some(AuthzPolicy::TolerateNoHandshake);
    let are_known = !issuer.are_secrets_unknown;
    if !is_protected(
        local,
        (key, tenant),
        (&object, entry),
        are_known,
        &mut plan,
        env,
    ) {
        return plan;
    }
    if let Err(refusal) = check(local, (key, tenant), peer) {
        refuse(&mut plan, object, tenant, refusal, env);
        return plan;
    }
    label_peer(&mut plan, &object, &tenant.metadata, peer);
    decision::plan_tenant(local, (key, tenant), &object, &mut plan);
    // The consumer may authenticate again, and has no rights without the bindings.
    let is_drained = decision::effective(local, key, tenant) == TenantCondition::Drained;
    if is_drained {
        plan.writes.extend(binding::leftovers(local, key, peer));
        if is_tolerated {
            return plan;
        }
        plan.writes.extend(leftovers::of_drained(local, key, peer));
    }
    let api_server = issuer.api_server;
    let issued = if is_tolerated {
        Ok(None)
    } else {
        issue(local, issuer, (key, tenant), &mut plan, env)
    };
    match issued {
        Ok(issued) if is_tolerated || issued.is_some() => {
            let parameters = auth_params(api_server, local);
            if issued.is_some() && parameters.api_server.is_none() {
                refuse(&mut plan, object, tenant, without_address(), env);
                return plan;
            }
            if !is_drained {
                plan.writes
                    .extend(binding::plan(local, (key, tenant), peer, is_tolerated));
            }
            plan.writes
                .extend(status(object, (key, tenant), issued, parameters, env));
        }
        Ok(_) => {}
        Err(refusal) => refuse(&mut plan, object, tenant, refusal, env),
    }

    plan
}

/// Returns whether a Tenant has its finalizer and is not deleted. Plans the finalizer otherwise, and the removal of all
/// that exists for the Tenant, which does not end before the Secrets are known.
fn is_protected(
    local: &Local<'_>,
    (key, tenant): (&Key, &Tenant),
    finalized: (&Ref, &Entry),
    are_secrets_known: bool,
    plan: &mut Plan<WorkItem>,
    env: &Env<'_>,
) -> bool {
    let peer = tenant.spec.cluster_id.as_deref().unwrap_or_default();
    let is_tolerated = tenant.spec.authz_policy == Some(AuthzPolicy::TolerateNoHandshake);
    let (leftovers, replicas) = match preceding(local, (key, tenant), peer) {
        Some(_) => Default::default(), // They are those of the other Tenant.
        None => (
            leftovers::of_deleted(local, key, peer),
            leftovers::replicas(local, key, peer),
        ),
    };
    // Rights that a user has given outlive the Tenant, and the consumer may create its objects again with them.
    let is_empty = leftovers.is_empty() && (is_tolerated || replicas.is_empty());
    let is_done = is_empty && are_secrets_known;
    let item = WorkItem::Tenant(key.clone());
    match FINALIZER.apply(plan, finalized, item, is_done, env.now) {
        Protection::Set => return true,
        Protection::Missing => {
            if check(local, (key, tenant), peer).is_ok() {
                decision::complete(local, (key, tenant), plan);
            }
        }
        Protection::Released => {}
        Protection::CleaningUp(_) | Protection::Expired => {
            let ended = leftovers.into_iter().chain(replicas);
            plan.writes.splice(0..0, ended);
        }
    }

    false
}

/// Returns the refusal while consumers would not know where this API server is.
fn without_address() -> Refusal {
    let message = "no node is labelled as control plane, so the address of this API server is unknown: set the chart's \
                   value apiServer.address";

    ("NoAPIServerAddress", message.to_owned())
}

/// Plans the condition of a Tenant that is refused, and an Event. What its status grants stays.
fn refuse(
    plan: &mut Plan<WorkItem>,
    object: Ref,
    tenant: &Tenant,
    (reason, mut message): Refusal,
    env: &Env<'_>,
) {
    message.truncate(message.floor_char_boundary(MESSAGE_LEN_MAX));
    warn(plan, object.clone(), (reason, message.clone()));
    let present = tenant.status.clone().unwrap_or_default();
    let mut status = present.clone();
    let verdict = Verdict {
        type_: "Ready",
        is_true: false,
        reason,
        message,
    };
    verdict.set(
        &mut status.conditions,
        tenant.metadata.generation,
        whole_seconds(env),
    );
    if status != present {
        let apply = Action::Apply(json!({"status": status}));
        plan.writes
            .push(Write::new(object, apply).subresource("status"));
    }
}

/// Checks the cluster ID of a consumer.
fn check(local: &Local<'_>, (key, tenant): (&Key, &Tenant), peer: &str) -> Result<(), Refusal> {
    if !control_fabric::is_cluster_id(peer) {
        let message = format!(
            "spec.clusterID: `{peer}` is no cluster ID: use up to 63 lower-case letters, digits and inner hyphens"
        );
        return Err(("InvalidClusterID", message));
    }
    if local.cluster_id() == Some(peer) {
        let message = format!(
            "spec.clusterID: `{peer}` is the ID of this cluster: the consumer needs another one"
        );
        return Err(("OwnClusterID", message));
    }
    let labelled = label(&tenant.metadata, labels::REMOTE_CLUSTER_ID);
    if local.peer_of(&key.namespace) != Some(peer) || labelled.is_some_and(|it| it != peer) {
        let message = format!(
            "spec.clusterID, the label {} of the Tenant and that of namespace {} differ: create the Tenant in the tenant \
             namespace of its consumer",
            labels::REMOTE_CLUSTER_ID,
            key.namespace
        );
        return Err(("NotTenantNamespace", message));
    }
    if let Some(other) = preceding(local, (key, tenant), peer) {
        let message = format!(
            "Tenant {other} is older and of the same consumer or namespace: delete one of the two"
        );
        return Err(("DuplicateTenant", message));
    }
    let of_name = local.tenants.indexed(BY_NAME, &key.name);
    if let Some(other) = first(local, of_name, (key, tenant)) {
        let message = format!("Tenant {other} is older and has the same name: use another name");
        return Err(("DuplicateTenant", message));
    }

    if let Some((slice, _)) = local.slices.indexed(BY_USER, peer).next() {
        let message = format!(
            "spec.clusterID: `{peer}` is the user of ResourceSlice {slice}: the consumer needs another cluster ID"
        );
        return Err(("ClusterIDInUse", message));
    }

    binding::check_cluster_id(local, &key.namespace, peer)
}

/// Returns a Tenant of the same consumer or in the same namespace that precedes this one.
fn preceding<'a>(local: &Local<'a>, tenant: (&Key, &Tenant), peer: &str) -> Option<&'a Key> {
    let of_peer = local.tenants.indexed(BY_PEER, peer);
    let others = of_peer.chain(local.tenants.within(&tenant.0.namespace));
    first(local, others, tenant)
}

/// Returns the first Tenant that precedes `tenant`: an older one, but first one in the tenant namespace of its consumer. A
/// user with rights in another namespace could displace the consumer otherwise.
fn first<'a>(
    local: &Local<'a>,
    mut others: impl Iterator<Item = (&'a Key, &'a Tenant)>,
    (key, tenant): (&Key, &Tenant),
) -> Option<&'a Key> {
    let order = |key: &Key, tenant: &Tenant| {
        let is_misplaced = local.peer_of(&key.namespace) != tenant.spec.cluster_id.as_deref();
        let created = tenant.metadata.creation_timestamp.as_ref();
        (is_misplaced, created.map(|time| time.0), key.clone())
    };
    let own = order(key, tenant);
    let first = others.find(|(other, it)| *other != key && order(other, it) < own);

    first.map(|(key, _)| key)
}

/// A certificate, in PEM, and why it will not be renewed in time.
type Issue = (Vec<u8>, Option<Refusal>);

/// Verifies the consumer's key, and issues its certificate. Returns `None` while the signer has not signed.
///
/// # Errors
///
/// Returns the reason of the refusal and its message.
fn issue(
    local: &Local<'_>,
    issuer: Issuer<'_>,
    (key, tenant): (&Key, &Tenant),
    plan: &mut Plan<WorkItem>,
    env: &Env<'_>,
) -> Result<Option<Issue>, Refusal> {
    let missing = |field: &str| {
        let message =
            format!("spec.{field} is missing: run `liqoctl authenticate` on the consumer");
        ("IncompleteTenant", message)
    };
    let public = tenant
        .spec
        .public_key
        .as_ref()
        .ok_or_else(|| missing("publicKey"))?;
    let csr = tenant.spec.csr.as_ref().ok_or_else(|| missing("csr"))?;
    let public = PublicKey::from_bytes(&public.0)
        .map_err(|error| ("InvalidPublicKey", format!("spec.publicKey: {error}")))?;
    let peer = tenant.spec.cluster_id.as_deref().unwrap_or_default();
    let subject = Subject::control_plane(peer);
    let secret = Key::new(key.namespace.clone(), SECRET_PREFIX);
    if !is_established(local, &secret, &csr.0) {
        verify(local, (key, tenant), &public, plan)?;
    }
    request::check(&csr.0, &subject, &public)
        .map_err(|error| ("InvalidCSR", format!("spec.csr: {error}")))?;
    let item = WorkItem::Tenant(key.clone());
    let requested = Requested {
        peer,
        secret,
        uid: tenant.metadata.uid.as_deref().unwrap_or_default(),
        subject,
        request: &csr.0,
        key: &public,
        user: issuer.user,
        item: &item,
    };
    match requested.plan(local, issuer.seen, plan, env) {
        Issued::Certificate(text, problem) => Ok(Some((text, problem))),
        Issued::Pending => Ok(None),
        Issued::Refused(reason, message) => Err((reason, message)),
    }
}

/// Returns whether a certificate was issued for this request, so that the nonce is not needed any more.
fn is_established(local: &Local<'_>, secret: &Key, csr: &[u8]) -> bool {
    let secret = local.secrets.get(secret);
    secret.is_some_and(|secret| {
        value(secret, "csr").is_some_and(|stored| stored.0 == csr)
            && value(secret, CERTIFICATE).is_some()
    })
}

/// Verifies the signature of the nonce, and binds the nonce to the key.
///
/// # Errors
///
/// Returns the reason of the refusal and its message.
fn verify(
    local: &Local<'_>,
    (key, tenant): (&Key, &Tenant),
    public: &PublicKey,
    plan: &mut Plan<WorkItem>,
) -> Result<(), Refusal> {
    let mut secrets = local.secrets.within(&key.namespace);
    let found = secrets.find(|(_, secret)| label(&secret.metadata, labels::NONCE) == Some("true"));
    let nonce = found.and_then(|(name, secret)| Some((name, secret, value(secret, NONCE)?)));
    let Some((name, secret, nonce)) = nonce else {
        let message = format!(
            "there is no nonce in namespace {}: run `liqoctl create nonce`",
            key.namespace
        );
        return Err(("NonceNotFound", message));
    };
    let signature = tenant.spec.signature.as_ref();
    let signature = signature.map(|it| it.0.as_slice()).unwrap_or_default();
    if let Err(error) = public.verify(&nonce.0, signature) {
        return Err((
            "SignatureVerificationFailed",
            format!("spec.signature: {error}"),
        ));
    }
    match is_bound_to(secret, public) {
        Some(true) => Ok(()),
        Some(false) => {
            let message = format!(
                "another key was verified with the nonce of Secret {name}: delete the Secret, and create another nonce"
            );
            Err(("NonceUsed", message))
        }
        None => {
            let object = Ref::of::<Secret>(&Cluster::Local, name);
            plan.apply(object, bound_to(secret, public));
            Ok(())
        }
    }
}

/// Returns the change of the status. A consumer that reads its credentials has its rights already.
fn status(
    object: Ref,
    (key, tenant): (&Key, &Tenant),
    issued: Option<Issue>,
    parameters: AuthParams,
    env: &Env<'_>,
) -> Option<Write> {
    let (certificate, problem) = issued.unzip();
    let present = tenant.status.iter().flat_map(|it| &it.conditions);
    let renewal = present.filter(|it| it.type_ == CERTIFICATE_RENEWAL);
    let mut conditions = Vec::new();
    if let Some((reason, message)) = problem.flatten() {
        conditions.extend(renewal.cloned());
        let verdict = Verdict {
            type_: CERTIFICATE_RENEWAL,
            is_true: false,
            reason,
            message,
        };
        verdict.set(
            &mut conditions,
            tenant.metadata.generation,
            whole_seconds(env),
        );
    }
    let status = TenantStatus {
        auth_params: certificate.map(|certificate| AuthParams {
            signed_crt: Some(ByteString(certificate)),
            proxy_url: tenant.spec.proxy_url.clone().filter(|url| !url.is_empty()),
            ..parameters
        }),
        conditions,
        tenant_namespace: Some(key.namespace.clone()),
    };
    if tenant.status.as_ref() == Some(&status) {
        return None;
    }
    let apply = Action::Apply(json!({"status": status}));
    let mut write = Write::new(object, apply).subresource("status");
    write.is_last = true;

    Some(write)
}
