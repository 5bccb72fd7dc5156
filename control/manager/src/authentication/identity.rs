//! Identities: the credentials of this cluster at its providers, as kubeconfig Secrets.

use super::controller_reference;
use super::eks;
use super::item::WorkItem;
use super::objects::{Local, Refusal, label_peer, warn, whole_seconds};
use super::renew;
use crate::network::{Verdict, covers};
use control_api::authentication::identity::IdentityType;
use control_api::{Identity, IdentityStatus, Renew, annotations, labels};
use control_credentials::{Access, Certificate, ClusterKey, eks_authority, kubeconfig};
use control_runtime::{Action, Cluster, Env, Key, Plan, Ref, Write};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{LocalObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// ClusterRole of peering users in a tenant namespace.
pub(super) const PEERING_USER_ROLE: &str = "liqo-peering-user-tenant-ns";

/// Plans the kubeconfig Secret of an Identity, and its status.
pub(super) fn plan(local: &Local<'_>, key: &Key, env: &Env<'_>) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let Some(identity) = local.identities.get(key) else {
        plan.writes.extend(leftovers(local, key));
        return plan;
    };
    let Some(cluster_key) = local.cluster_key() else {
        return plan;
    };
    if identity.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let object = Ref::of::<Identity>(&Cluster::Local, key);
    if let Some(peer) = local.peer_of(&key.namespace) {
        label_peer(&mut plan, &object, &identity.metadata, peer);
    }
    let secret = Key::new(key.namespace.clone(), format!("kubeconfig-{}", key.name));
    let present = local.secrets.get(&secret);
    if let Some(binding) = reader(local, &key.namespace).filter(|_| present.is_none()) {
        let message = format!(
            "RoleBinding {binding} lets a peering user read the key of this cluster, which the kubeconfig contains: run \
             `liqoctl delete peering-user`, or annotate the RoleBinding with {}=true",
            annotations::ALLOW_REVERSE_PEERING
        );
        refuse(
            &mut plan,
            object,
            identity,
            ("ClusterKeyReadable", message),
            env,
        );
        return plan;
    }
    renew::plan_own(local, key, (identity, &cluster_key), &mut plan);
    let text = match text(local, (key, identity), &cluster_key) {
        Ok(text) => text,
        Err(message) => {
            refuse(
                &mut plan,
                object,
                identity,
                ("InvalidIdentity", message),
                env,
            );
            return plan;
        }
    };
    let fields = fields(identity, &text);
    let present = present.map(|present| serde_json::to_value(present).unwrap_or_default());
    if !present.is_some_and(|present| covers(&present, &fields)) {
        plan.apply(Ref::of::<Secret>(&Cluster::Local, &secret), fields);
    }
    let status = IdentityStatus {
        kubeconfig_secret_ref: Some(LocalObjectReference { name: secret.name }),
        conditions: Vec::new(),
    };
    plan.writes.extend(change(object, identity, &status));

    plan
}

/// Plans the condition of an Identity that is refused, and an Event. The kubeconfig of an earlier one stays.
fn refuse(
    plan: &mut Plan<WorkItem>,
    object: Ref,
    identity: &Identity,
    (reason, message): Refusal,
    env: &Env<'_>,
) {
    warn(plan, object.clone(), (reason, message.clone()));
    let mut status = identity.status.clone().unwrap_or_default();
    let verdict = Verdict {
        type_: "Ready",
        is_true: false,
        reason,
        message,
    };
    let generation = identity.metadata.generation;
    verdict.set(&mut status.conditions, generation, whole_seconds(env));
    plan.writes.extend(change(object, identity, &status));
}

/// Returns the Apply of a status, unless it is the present one.
fn change(object: Ref, identity: &Identity, status: &IdentityStatus) -> Option<Write> {
    if identity.status.as_ref() == Some(status) {
        return None;
    }
    let apply = Action::Apply(json!({"status": status}));
    let mut write = Write::new(object, apply).subresource("status");
    // A reader of the status finds the Secret.
    write.is_last = true;

    Some(write)
}

/// Returns the RoleBinding of a peering user who may list the Secrets of a namespace, unless its creator permits that.
fn reader<'a>(local: &Local<'a>, namespace: &str) -> Option<&'a Key> {
    let mut bindings = local.role_bindings.within(namespace);
    let reader = bindings.find(|(_, binding)| {
        let annotations = binding.metadata.annotations.as_ref();
        let allowed = annotations.and_then(|it| it.get(annotations::ALLOW_REVERSE_PEERING));
        binding.role_ref.name == PEERING_USER_ROLE && allowed.is_none_or(|it| it != "true")
    });

    reader.map(|(key, _)| key)
}

/// Returns the deletions of what an Identity has left. Garbage collection would delete it later.
fn leftovers(local: &Local<'_>, key: &Key) -> Vec<Write> {
    let is_owned = |metadata: &ObjectMeta| {
        let owners = metadata.owner_references.iter().flatten();
        let mut of_identities = owners.filter(|it| it.kind == Identity::kind(&()));
        metadata.deletion_timestamp.is_none() && of_identities.any(|it| it.name == key.name)
    };
    let renew = local.renews.get(key).map(|it| &it.metadata);
    let renew = renew.filter(|it| is_owned(it)).map(|it| {
        let object = Ref::of::<Renew>(&Cluster::Local, key);
        (object, it)
    });
    let secrets = local.secrets.within(&key.namespace);
    let secrets = secrets
        .filter(|(_, it)| is_owned(&it.metadata))
        .map(|(key, it)| {
            let object = Ref::of::<Secret>(&Cluster::Local, key);
            (object, &it.metadata)
        });
    let owned = renew.into_iter().chain(secrets);
    let deletions = owned.map(|(object, metadata)| {
        let mut write = Write::new(object, Action::Delete);
        write.uid.clone_from(&metadata.uid);
        write
    });

    deletions.collect()
}

/// Returns the kubeconfig.
///
/// # Errors
///
/// Returns the field that is missing or wrong, and the remedy.
fn text(
    local: &Local<'_>,
    (key, identity): (&Key, &Identity),
    cluster_key: &ClusterKey,
) -> Result<String, String> {
    let missing = |field: &str| {
        format!("spec.{field} is missing: copy it from the status of the provider's object")
    };
    let spec = &identity.spec;
    let cluster = spec
        .cluster_id
        .as_deref()
        .ok_or_else(|| missing("clusterID"))?;
    if local.peer_of(&key.namespace) != Some(cluster) {
        return Err(format!(
            "spec.clusterID is `{cluster}`, but namespace {} is not the tenant namespace of that cluster",
            key.namespace
        ));
    }
    let parameters = spec
        .auth_params
        .as_ref()
        .ok_or_else(|| missing("authParams"))?;
    let (client, ca) = match &parameters.aws_config {
        Some(aws) => {
            eks::issued(aws)
                .check()
                .map_err(|error| format!("spec.authParams.awsConfig: {error}"))?;
            (None, parameters.ca.as_ref().map(|ca| eks_authority(&ca.0)))
        }
        None => {
            let certificate = parameters.signed_crt.as_ref();
            let certificate = certificate.ok_or_else(|| missing("authParams.signedCRT"))?;
            Certificate::check_key(&certificate.0, cluster_key.public_key())
                .map_err(|error| format!("spec.authParams.signedCRT: {error}"))?;
            let client = (certificate.0.as_slice(), cluster_key.to_pem().as_bytes());
            let ca = parameters.ca.as_ref().map(|ca| Cow::from(&ca.0));
            (Some(client), ca)
        }
    };
    let server = parameters.api_server.as_deref();
    let access = Access {
        cluster,
        user: &key.name,
        server: server.ok_or_else(|| missing("authParams.apiServer"))?,
        certificate_authority: ca.as_deref().filter(|ca| !ca.is_empty()),
        proxy_url: parameters
            .proxy_url
            .as_deref()
            .filter(|url| !url.is_empty()),
        namespace: spec
            .namespace
            .as_deref()
            .filter(|_| is_control_plane(identity)),
        client,
    };

    kubeconfig(&access).map_err(|error| format!("failed to write the kubeconfig: {error}"))
}

/// Returns the fields of the Secret.
fn fields(identity: &Identity, kubeconfig: &str) -> Value {
    let spec = &identity.spec;
    let kind = if is_control_plane(identity) {
        "ControlPlane"
    } else {
        "ResourceSlice"
    };
    let mut metadata = json!({
        "labels": {
            labels::MANAGED: "true",
            labels::REMOTE_CLUSTER_ID: spec.cluster_id,
            labels::IDENTITY_TYPE: kind,
        },
        "ownerReferences": [controller_reference(identity)],
    });
    if let Some(namespace) = spec
        .namespace
        .as_ref()
        .filter(|_| is_control_plane(identity))
    {
        metadata["annotations"] = json!({annotations::REMOTE_TENANT_NAMESPACE: namespace});
    }

    let mut data = BTreeMap::from([("kubeconfig", kubeconfig)]);
    let parameters = spec.auth_params.as_ref();
    if let Some(aws) = parameters.and_then(|it| it.aws_config.as_ref()) {
        data.extend(eks::fields(aws));
    }
    let data: BTreeMap<_, _> = data
        .into_iter()
        .map(|(field, value)| (field, ByteString(value.as_bytes().to_vec())))
        .collect();

    json!({"metadata": metadata, "data": data})
}

fn is_control_plane(identity: &Identity) -> bool {
    identity.spec.type_ != Some(IdentityType::ResourceSlice)
}
