//! The decision about one pod by a Quota (PURE), given the amounts that are used.

use super::demand::{Amounts, Demand, PODS, amounts};
use control_api::QuotaSpec;
use control_api::offloading::quota::LimitsEnforcement;
use control_api::quantity::{Amount, amount};
use std::collections::BTreeMap;

/// Resources, limits enforcement and cordon of a [`Quota`](control_api::Quota).
#[derive(Clone, Debug)]
pub(super) struct Terms {
    limits: Amounts,
    enforcement: LimitsEnforcement,
    is_cordoned: bool,
}

/// Why a pod does not fit, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error(
        "the creator has no Quota in namespace {tenant}: a ResourceSlice of this user must be accepted"
    )]
    NoQuota { tenant: String },

    #[error("the pod counts against no Quota: delete the ShadowPod, so that it is created again")]
    NotCharged,

    #[error(
        "user is cordoned: its running pods stay, and new ones wait until the provider uncordons the ResourceSlice or Tenant"
    )]
    Cordoned,

    #[error("{field} is missing, and the Quota enforces limits: set a request of the container")]
    NoRequest { field: String },

    #[error(
        "limit and request of {field} differ, and the Quota enforces limits: set them to the same value"
    )]
    UnequalLimit { field: String },

    #[error(
        "exceeded quota: {resource}, requested {requested}, which the Quota does not contain: request it by the \
         ResourceSlice, or remove it from the pod"
    )]
    NotGranted { resource: String, requested: Amount },

    #[error(
        "exceeded quota: {resource}, requested {requested}, used {used}, limited {limit}, available {available}: wait until \
         pods end, or enlarge the ResourceSlice"
    )]
    Exceeded {
        resource: String,
        requested: Amount,
        used: Amount,
        limit: Amount,
        available: Amount,
    },
}

impl Terms {
    /// Returns the terms of a Quota. An amount that is no quantity counts as none. Without an amount of pods, their number is
    /// not limited, as upstream's provider does not count them.
    pub(super) fn of(quota: &QuotaSpec) -> Self {
        let mut limits: Amounts = BTreeMap::from([(PODS.to_owned(), Amount::MAX)]);
        let named = quota.resources.iter().map(|(resource, quantity)| {
            let amount = amount(&quantity.0).unwrap_or_default();
            (resource.clone(), amount)
        });
        limits.extend(named);
        Self {
            limits,
            enforcement: quota.limits_enforcement.unwrap_or(LimitsEnforcement::None),
            is_cordoned: quota.cordoned == Some(true),
        }
    }

    /// Checks that a pod fits beside what is used. A pod that existed before is created again although the Quota is
    /// cordoned: for example, the provider has drained a node.
    ///
    /// # Errors
    ///
    /// Returns the first reason why it does not.
    pub(super) fn check(
        &self,
        used: &Amounts,
        demand: &Demand,
        is_new: bool,
    ) -> Result<(), Excess> {
        if self.is_cordoned && is_new {
            return Err(Excess::Cordoned);
        }
        let (is_soft, is_hard) = match self.enforcement {
            LimitsEnforcement::None => (false, false),
            LimitsEnforcement::Soft => (true, false),
            LimitsEnforcement::Hard => (true, true),
        };
        if let Some(field) = demand.without_request.as_ref().filter(|_| is_soft) {
            let field = field.clone();
            return Err(Excess::NoRequest { field });
        }
        if let Some(field) = demand.without_equal_limit.as_ref().filter(|_| is_hard) {
            let field = field.clone();
            return Err(Excess::UnequalLimit { field });
        }
        let requested = demand.amounts.iter();
        for (resource, requested) in requested.filter(|(_, amount)| **amount > Amount::default()) {
            let (resource, requested) = (resource.clone(), *requested);
            let Some(limit) = self.limits.get(&resource).copied() else {
                return Err(Excess::NotGranted {
                    resource: super::text::shown(&resource),
                    requested,
                });
            };
            let used = used.get(&resource).copied().unwrap_or_default();
            let available = limit.saturating_sub(used);
            if requested > available {
                return Err(Excess::Exceeded {
                    resource: super::text::shown(&resource),
                    requested,
                    used,
                    limit,
                    available,
                });
            }
        }

        Ok(())
    }
}

/// Returns the amounts of a RuntimeClass' overhead; what is no quantity is left out, because admission refuses its pods.
pub(super) fn overhead(quantities: Option<&super::demand::Quantities>) -> Amounts {
    amounts(quantities, "overhead.podFixed").unwrap_or_default()
}
