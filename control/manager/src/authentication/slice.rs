//! ResourceSlices of consumers: their certificates, and the verdict about the resources.
//!
//! Both verdicts are written at once, because `liqoctl` waits for the first one and then reads the second.

use super::binding;
use super::budget::Budgets;
use super::certificate::{Issued, Requested, SECRET_PREFIX};
use super::decision;
use super::item::WorkItem;
use super::objects::{BY_PEER, BY_USER, Local, Refusal, label, origin, warn, whole_seconds};
use super::parameters::auth_params;
use super::seen::Seen;
use super::tenant::Issuer;
use super::verdict::{self, Grants, State, Verdict};
use control_api::authentication::auth_params::AuthParams;
use control_api::authentication::resource_slice::{
    ResourceSliceCondition as Condition, ResourceSliceConditionStatus as Status,
    ResourceSliceConditionType as Type,
};
use control_api::authentication::tenant::{AuthzPolicy, TenantCondition};
use control_api::{ResourceSlice, ResourceSliceStatus, Tenant, labels};
use control_credentials::{PublicKey, Subject, request};
use control_runtime::{Action, Cluster, Env, Key, Plan, Ref, Write};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::time::Duration;

/// Longest name of a consumer's ResourceSlice: the name of the Secret with its certificate is longer.
const NAME_LEN_MAX: usize = 200;

/// Time after which a class counts as one that no controller serves.
const CLASS_MAX: Duration = Duration::from_secs(30);

/// Plans the certificate and the status of a consumer's ResourceSlice.
pub(super) fn plan(
    local: &Local<'_>,
    mut issuer: Issuer<'_>,
    (grants, budgets): (&Grants, &Budgets),
    key: &Key,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let Some(slice) = local.slices.get(key) else {
        return plan;
    };
    let consumer = origin(&slice.metadata).unwrap_or_default();
    let is_of_peer = local.peer_of(&key.namespace) == Some(consumer)
        && slice
            .spec
            .consumer_cluster_id
            .as_deref()
            .unwrap_or(consumer)
            == consumer;
    let object = Ref::of::<ResourceSlice>(&Cluster::Local, key);
    if !is_of_peer {
        let message = format!(
            "spec.consumerClusterID, the label {} and namespace {} are of different consumers",
            labels::ORIGIN_ID,
            key.namespace
        );
        warn(&mut plan, object, ("NotTenantNamespace", message));
        return plan;
    }
    let Some((tenant_key, tenant)) = established(local, key, consumer) else {
        return plan;
    };
    let is_left = slice.spec.csr.is_none() || slice.metadata.deletion_timestamp.is_some();
    if is_left {
        return plan;
    }
    decision::plan_slice(local, (key, slice), (tenant_key, tenant), &mut plan);
    let condition = decision::effective(local, tenant_key, tenant);
    let requested = Request {
        key,
        slice,
        tenant,
        consumer,
    };
    let authenticated = match requested.authenticate(local, &mut issuer, &mut plan, env) {
        Ok(None) => return plan, // The signer has not signed yet.
        Ok(Some(parameters)) => Ok(parameters),
        Err(refusal) => {
            warn(&mut plan, object.clone(), refusal.clone());
            Err(refusal)
        }
    };
    let state = State {
        is_cordoned: condition == TenantCondition::Cordoned,
        is_drained: condition == TenantCondition::Drained,
        present: requested.condition(Type::Resources).map(|it| it.status),
    };
    let verdict = verdict::decide(slice, grants, local, state, budgets.excess(key));
    if let Verdict::Denied(reason, _, Some(detail)) = &verdict {
        warn(&mut plan, object.clone(), (*reason, detail.clone()));
    }
    let write = requested.status(object, authenticated, verdict, issuer.seen, &mut plan, env);
    plan.writes.extend(write);

    plan
}

/// Returns the message of a refused authentication for the consumer. What concerns other objects of this cluster is in its
/// Events only.
fn denial((reason, message): &Refusal) -> String {
    const OF_REQUEST: [&str; 4] = [
        "InvalidName",
        "InvalidCSR",
        "InvalidPublicKey",
        "OtherProvider",
    ];
    let denied = "ResourceSlice authentication denied";
    match OF_REQUEST.contains(reason) {
        true => format!("{denied}: {message}"),
        false => format!("{denied}: {reason}, see the Events of the ResourceSlice at the provider"),
    }
}

/// Returns the Tenant whose verified consumer has this namespace.
fn established<'a>(local: &Local<'a>, key: &Key, consumer: &str) -> Option<(&'a Key, &'a Tenant)> {
    let mut tenants = local.tenants.within(&key.namespace);
    tenants.find(|(_, tenant)| {
        let is_verified = tenant
            .status
            .as_ref()
            .is_some_and(|status| status.tenant_namespace.as_ref() == Some(&key.namespace));
        is_verified
            && tenant.spec.cluster_id.as_deref() == Some(consumer)
            && tenant.metadata.deletion_timestamp.is_none()
    })
}

/// A ResourceSlice with its Tenant.
struct Request<'a> {
    key: &'a Key,
    slice: &'a ResourceSlice,
    tenant: &'a Tenant,
    consumer: &'a str,
}

impl Request<'_> {
    /// Issues the certificate. Returns `None` while the signer has not signed.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal and its message.
    fn authenticate(
        &self,
        local: &Local<'_>,
        issuer: &mut Issuer<'_>,
        plan: &mut Plan<WorkItem>,
        env: &Env<'_>,
    ) -> Result<Option<AuthParams>, Refusal> {
        self.check_provider(local)?;
        let name = &self.key.name;
        if name.len() > NAME_LEN_MAX {
            let message = format!("metadata.name is longer than {NAME_LEN_MAX} characters");
            return Err(("InvalidName", message));
        }
        let subject = Subject::resource_slice(self.consumer, name);
        let user = &subject.common_name;
        binding::check_slice_user(local, user)?;
        if let Some((tenant, _)) = local.tenants.indexed(BY_PEER, user).next() {
            let message = format!(
                "metadata.name: the user `{user}` of its certificate is that of Tenant {tenant}: use another name"
            );
            return Err(("UserInUse", message));
        }
        if let Some((other, _)) = self.older(local, user) {
            let message = format!(
                "metadata.name: the user `{user}` of its certificate is that of ResourceSlice {other}: use another name"
            );
            return Err(("UserInUse", message));
        }
        let csr = self.slice.spec.csr.clone().unwrap_or_default();
        let public = self.public_key(&csr.0)?;
        request::check(&csr.0, &subject, &public)
            .map_err(|error| ("InvalidCSR", format!("spec.csr: {error}")))?;
        let item = WorkItem::ResourceSlice(self.key.clone());
        let secret = format!("{SECRET_PREFIX}-{name}");
        let requested = Requested {
            peer: self.consumer,
            secret: Key::new(self.key.namespace.clone(), secret),
            uid: self.slice.metadata.uid.as_deref().unwrap_or_default(),
            subject,
            request: &csr.0,
            key: &public,
            user: issuer.user,
            item: &item,
        };
        let signed = match requested.plan(local, issuer.seen, plan, env) {
            Issued::Certificate(text, _) => text,
            Issued::Pending => return Ok(None),
            Issued::Refused(reason, message) => return Err((reason, message)),
        };
        let proxy = self.tenant.spec.proxy_url.clone();

        Ok(Some(AuthParams {
            signed_crt: Some(ByteString(signed)),
            proxy_url: proxy.filter(|url| !url.is_empty()),
            ..auth_params(issuer.api_server, local)
        }))
    }

    /// Checks that the consumer has requested the resources of this cluster. It may have the credentials of another one.
    fn check_provider(&self, local: &Local<'_>) -> Result<(), Refusal> {
        let requested = self.slice.spec.provider_cluster_id.as_deref();
        match (requested, local.cluster_id()) {
            (Some(requested), Some(own)) if requested != own => {
                let message = format!(
                    "spec.providerClusterID is `{requested}`, but this cluster is `{own}`: the kubeconfig of the consumer \
                     is of another provider than its tenant namespace"
                );
                Err(("OtherProvider", message))
            }
            _ => Ok(()),
        }
    }

    /// Returns an older ResourceSlice with the same user. The user contains 48 bits of a digest of the cluster ID, which the
    /// consumer chooses.
    fn older<'a>(&self, local: &Local<'a>, user: &str) -> Option<(&'a Key, &'a ResourceSlice)> {
        let age = |key: &Key, slice: &ResourceSlice| {
            let created = slice.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), key.clone())
        };
        let own = age(self.key, self.slice);
        let mut others = local.slices.indexed(BY_USER, user);
        others.find(|(key, slice)| {
            let is_of_peer = local.peer_of(&key.namespace) == origin(&slice.metadata);
            is_of_peer && age(key, slice) < own
        })
    }

    /// Returns the key of the consumer; without key exchange, that of the request.
    fn public_key(&self, csr: &[u8]) -> Result<PublicKey, Refusal> {
        let verified = self.tenant.spec.public_key.as_ref();
        let is_tolerated = self.tenant.spec.authz_policy == Some(AuthzPolicy::TolerateNoHandshake);
        let key = match verified {
            Some(key) => PublicKey::from_bytes(&key.0).map_err(|error| error.to_string()),
            None if is_tolerated => request::public_key(csr).map_err(|error| error.to_string()),
            None => Err("the Tenant has none".to_owned()),
        };

        key.map_err(|error| ("InvalidPublicKey", format!("the consumer's key: {error}")))
    }

    /// Returns a condition of the present status.
    fn condition(&self, type_: Type) -> Option<&Condition> {
        let status = self.slice.status.as_ref()?;
        status.conditions.iter().find(|it| it.type_ == type_)
    }

    /// Returns the change of the status.
    fn status(
        &self,
        object: Ref,
        authenticated: Result<AuthParams, Refusal>,
        verdict: Verdict,
        seen: &mut Seen,
        plan: &mut Plan<WorkItem>,
        env: &Env<'_>,
    ) -> Option<Write> {
        let present = self.slice.status.clone().unwrap_or_default();
        let denied = authenticated.as_ref().err().map(denial);
        let (status, reason, message) = match &denied {
            None => (
                Status::Accepted,
                "ResourceSliceAuthenticationAccepted",
                "ResourceSlice authentication accepted",
            ),
            Some(message) => (
                Status::Denied,
                "ResourceSliceAuthenticationDenied",
                message.as_str(),
            ),
        };
        let authentication = self.changed(Type::Authentication, (status, reason, message), env);
        let (granted, resources) = match verdict {
            Verdict::Accepted(granted) => {
                let (reason, message) = verdict::ACCEPTED;
                let accepted = (Status::Accepted, reason, message);
                (*granted, Some(self.changed(Type::Resources, accepted, env)))
            }
            Verdict::Denied(reason, message, _) => {
                let denied = (Status::Denied, reason, message.as_str());
                let denied = self.changed(Type::Resources, denied, env);
                (ResourceSliceStatus::default(), Some(denied))
            }
            Verdict::Unchanged => {
                let resources = self.condition(Type::Resources).cloned();
                (present.clone(), resources)
            }
            Verdict::Foreign(class) => {
                let resources = self.unserved(&class, seen, plan, env);
                (ResourceSliceStatus::default(), resources)
            }
        };
        let desired = ResourceSliceStatus {
            auth_params: authenticated.ok(),
            conditions: [Some(authentication), resources]
                .into_iter()
                .flatten()
                .collect(),
            // Another controller may have set it.
            node_selector: std::collections::BTreeMap::new(),
            ..granted
        };

        change(object, &present, &desired)
    }

    /// Returns a condition with the time of its last transition.
    fn changed(
        &self,
        type_: Type,
        (status, reason, message): (Status, &str, &str),
        env: &Env<'_>,
    ) -> Condition {
        let present = self.condition(type_).filter(|it| it.status == status);
        let now = whole_seconds(env);
        let since = present.and_then(|it| it.last_transition_time.clone());

        Condition {
            last_transition_time: Some(since.unwrap_or(Time(now))),
            message: Some(message.to_owned()),
            reason: Some(reason.to_owned()),
            status,
            type_,
        }
    }

    /// Returns the condition of a class about which no controller has decided in time.
    fn unserved(
        &self,
        class: &str,
        seen: &mut Seen,
        plan: &mut Plan<WorkItem>,
        env: &Env<'_>,
    ) -> Option<Condition> {
        let message = format!(
            "no controller has decided about the class `{class}` within {} s",
            CLASS_MAX.as_secs()
        );
        let present = self.condition(Type::Resources);
        if present.is_some_and(|it| it.message.as_ref() != Some(&message)) {
            return None; // The verdict of that controller.
        }
        let uid = self.slice.metadata.uid.as_deref();
        if let Some(rest) = seen.remaining(uid, CLASS_MAX, env) {
            plan.requeue
                .push((rest, WorkItem::ResourceSlice(self.key.clone())));
            return None;
        }
        let denied = (
            Status::Denied,
            "ResourceSliceResourcesDenied",
            message.as_str(),
        );

        Some(self.changed(Type::Resources, denied, env))
    }
}

/// Returns the Apply of a status, unless the present one has these fields and no others of this controller.
fn change(
    object: Ref,
    present: &ResourceSliceStatus,
    desired: &ResourceSliceStatus,
) -> Option<Write> {
    let is_foreign = desired
        .conditions
        .iter()
        .all(|it| it.type_ == Type::Authentication);
    let mut expected = desired.clone();
    if is_foreign {
        // The other fields are of the controller that decides about the class.
        expected = present.clone();
        expected.auth_params.clone_from(&desired.auth_params);
        expected
            .conditions
            .retain(|it| it.type_ != Type::Authentication);
        expected.conditions.extend(desired.conditions.clone());
    } else {
        expected.node_selector.clone_from(&present.node_selector);
    }
    let sorted = |status: &ResourceSliceStatus| -> Value {
        let mut status = status.clone();
        status
            .conditions
            .sort_by_key(|it| it.type_ == Type::Resources);
        serde_json::to_value(status).unwrap_or_default()
    };
    if sorted(&expected) == sorted(present) {
        return None;
    }
    let apply = Action::Apply(json!({"status": desired}));

    Some(Write::new(object, apply).subresource("status"))
}

/// Returns whether a label of an object shows that a consumer has replicated it.
pub(crate) fn is_replica(metadata: &ObjectMeta) -> bool {
    label(metadata, labels::REPLICATED) == Some("true")
}
