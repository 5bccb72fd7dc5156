//! Which of a user's pods fit into its Quota.
//!
//! Every leader decides alike from the same objects, so no order of events lets a user exceed its Quota: pods that exist
//! count first, then ShadowPods by creation time and UID.

use control_api::Quota;
use control_api::quantity::{Amount, amount};
use control_api::requests::{Amounts, add};
use k8s_openapi::jiff::Timestamp;

/// A pod of a user, or one that it requests.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    /// Whether the pod exists.
    pub(super) is_present: bool,
    /// Creation of the ShadowPod.
    pub(super) created: Option<Timestamp>,
    /// UID of the ShadowPod.
    pub(super) uid: &'a str,
    /// Amounts that the pod requests.
    pub(super) amounts: Amounts,
}

impl Claim<'_> {
    fn rank(&self) -> (bool, Option<Timestamp>, &str) {
        (!self.is_present, self.created, self.uid)
    }
}

/// Why a pod does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum QuotaError {
    #[error("the Quota of the user is cordoned: ask the provider to uncordon the ResourceSlice")]
    Cordoned,
    #[error("the Quota of the user grants no {0}: request the resource in the ResourceSlice")]
    NotGranted(String),
    #[error(
        "{resource} is exceeded: the pod requests {requested}, and {available} of {granted} are left: delete pods, or request \
         more in the ResourceSlice"
    )]
    Exceeded {
        resource: String,
        requested: Amount,
        available: Amount,
        granted: Amount,
    },
}

/// Checks whether the pod of a ShadowPod with UID `uid` may be created beside the other claims of its user.
///
/// A claim of a higher rank that does not fit itself takes nothing.
///
/// # Errors
///
/// Returns [`QuotaError`] if it may not.
pub(super) fn check(quota: &Quota, claims: &[Claim<'_>], uid: &str) -> Result<(), QuotaError> {
    if quota.spec.cordoned == Some(true) {
        return Err(QuotaError::Cordoned);
    }
    let granted = granted(quota);
    let mut claims: Vec<_> = claims.iter().collect();
    claims.sort_by_key(|claim| claim.rank());
    let mut used = Amounts::new();
    for claim in claims {
        let result = fits(&granted, &used, &claim.amounts);
        if claim.uid == uid {
            return result;
        }
        if claim.is_present || result.is_ok() {
            add(&mut used, &claim.amounts);
        }
    }

    Ok(())
}

fn fits(granted: &Amounts, used: &Amounts, requested: &Amounts) -> Result<(), QuotaError> {
    for (resource, requested) in requested.iter().filter(|(_, it)| **it > Amount::default()) {
        let Some(granted) = granted.get(resource) else {
            return Err(QuotaError::NotGranted(resource.clone()));
        };
        let used = used.get(resource).copied().unwrap_or_default();
        if used.saturating_add(*requested) > *granted {
            return Err(QuotaError::Exceeded {
                resource: resource.clone(),
                requested: *requested,
                available: granted.saturating_sub(used),
                granted: *granted,
            });
        }
    }

    Ok(())
}

/// Returns the amounts of a Quota. Without an amount of pods, their number is not limited.
fn granted(quota: &Quota) -> Amounts {
    let resources = quota.spec.resources.iter();
    let parsed = resources.map(|(key, it)| (key.clone(), amount(&it.0).unwrap_or_default()));
    let mut granted: Amounts = parsed.collect();
    granted.entry("pods".to_owned()).or_insert(Amount::MAX);

    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, from_value, json};
    use std::collections::BTreeSet;

    fn quota(spec: Value) -> Quota {
        Quota::new("q", from_value(spec).unwrap())
    }

    fn claim(uid: &str, cpu: &str, is_present: bool) -> Claim<'static> {
        Claim {
            is_present,
            created: None,
            uid: uid.to_owned().leak(),
            amounts: [("cpu".to_owned(), amount(cpu).unwrap())].into(),
        }
    }

    #[test]
    fn pods_that_exist_precede_older_requests() {
        let quota = quota(json!({"user": "u", "resources": {"cpu": "2"}}));
        let claims = [claim("a", "1", false), claim("b", "2", true)];

        let error = check(&quota, &claims, "a").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cpu is exceeded: the pod requests 1, and 0 of 2 are left: delete pods, or request more in the ResourceSlice"
        );
        assert_eq!(check(&quota, &claims, "b"), Ok(()));
    }

    #[test]
    fn a_request_that_does_not_fit_blocks_no_other() {
        let quota = quota(json!({"user": "u", "resources": {"cpu": "2"}}));
        let claims = [claim("a", "3", false), claim("b", "2", false)];

        assert!(check(&quota, &claims, "a").is_err());
        assert_eq!(check(&quota, &claims, "b"), Ok(()));
    }

    #[test]
    fn resources_that_are_not_granted_are_refused() {
        let quota = quota(json!({"user": "u", "resources": {"memory": "2Gi"}}));
        let error = check(&quota, &[claim("a", "1", false)], "a");
        assert_eq!(error, Err(QuotaError::NotGranted("cpu".to_owned())));
        assert_eq!(check(&quota, &[claim("a", "0", false)], "a"), Ok(()));
    }

    #[test]
    fn a_cordoned_quota_admits_nothing() {
        let quota = quota(json!({"user": "u", "cordoned": true, "resources": {"cpu": "2"}}));
        assert_eq!(
            check(&quota, &[claim("a", "1", false)], "a"),
            Err(QuotaError::Cordoned)
        );
    }

    proptest! {
        /// Leaders that decide in any order, each from the objects of its time, never exceed the quota.
        #[test]
        fn no_order_of_decisions_exceeds_the_quota(
            cpus in prop::collection::vec(1..5_u32, 1..12),
            order in prop::collection::vec(any::<prop::sample::Index>(), 40),
            limit in 1..12_u32,
        ) {
            let quota = quota(json!({"user": "u", "resources": {"cpu": limit.to_string()}}));
            let names: Vec<_> = (0..cpus.len()).map(|it| format!("{it:02}")).collect();
            let mut present = BTreeSet::new();
            // A decision of an earlier leader, whose request is still on its way.
            let mut late = BTreeSet::new();
            for index in order {
                let of = |it: usize, present: &BTreeSet<usize>| claim(&names[it], &cpus[it].to_string(), present.contains(&it));
                let claims: Vec<_> = (0..cpus.len()).map(|it| of(it, &present)).collect();
                let chosen = index.index(cpus.len());
                if check(&quota, &claims, &names[chosen]).is_ok() {
                    late.insert(chosen);
                }
                if late.len() > 2 {
                    present.append(&mut late);
                }
            }
            present.append(&mut late);
            let used: u32 = present.iter().map(|it| cpus[*it]).sum();
            prop_assert!(used <= limit, "{used} of {limit}");
        }

        #[test]
        fn what_exists_is_never_counted_twice_or_left_out(cpus in prop::collection::vec(1..5_u32, 1..8)) {
            let sum: u32 = cpus.iter().sum();
            let quota = quota(json!({"user": "u", "resources": {"cpu": sum.to_string()}}));
            let claims: Vec<_> = cpus.iter().enumerate().map(|(it, cpu)| claim(&format!("{it:02}"), &cpu.to_string(), it > 0)).collect();

            prop_assert_eq!(check(&quota, &claims, "00"), Ok(()));
            let mut more = claims.clone();
            more[0].amounts = [("cpu".to_owned(), amount(&(cpus[0] + 1).to_string()).unwrap())].into();
            prop_assert!(check(&quota, &more, "00").is_err());
        }
    }
}
