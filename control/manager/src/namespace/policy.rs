//! Which namespaces a consumer may have, by its TenantPolicy.

use control_api::authentication::tenant_policy::{NamespacePolicy, PodSecurity};
use control_api::{TenantPolicy, TenantPolicySpec};

/// Largest number of namespaces of a consumer, if its policy names none.
const COUNT_MAX: u32 = 100;

/// Prefix of the names that Kubernetes reserves for itself.
const RESERVED_PREFIX: &str = "kube-";

/// Names of namespaces that exist in every cluster, or that have a meaning.
const RESERVED: [&str; 2] = ["default", "liqo-storage"];

/// The limits of a consumer.
pub(super) struct Limits<'a> {
    namespaces: Option<&'a NamespacePolicy>,
    /// Namespace of Liqo.
    liqo: &'a str,
}

impl<'a> Limits<'a> {
    /// Returns the limits by a policy; the defaults without one.
    pub(super) fn new(policy: Option<&'a TenantPolicy>, liqo: &'a str) -> Self {
        let namespaces = policy.and_then(|it| it.spec.namespaces.as_ref());

        Self { namespaces, liqo }
    }

    /// Returns the largest number of namespaces.
    pub(super) fn count_max(&self) -> usize {
        let max = self.namespaces.and_then(|it| it.max).unwrap_or(COUNT_MAX);
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// Checks the name of a namespace.
    ///
    /// # Errors
    ///
    /// Returns the reason of the refusal, with its remedy.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        if !super::name::is_label(name) {
            return Err(format!("`{name}` is no name of a namespace"));
        }
        if name.starts_with(RESERVED_PREFIX) || RESERVED.contains(&name) || name == self.liqo {
            return Err(format!(
                "`{name}` is reserved: the consumer needs another name"
            ));
        }
        let Some(policy) = self.namespaces else {
            return Ok(());
        };
        let matches = |globs: &[String]| globs.iter().any(|glob| matches_glob(glob, name));
        let denied = policy.denied_names.as_deref().unwrap_or_default();
        let is_allowed = policy.allowed_names.as_deref().is_none_or(matches);
        if matches(denied) || !is_allowed {
            return Err(format!(
                "`{name}` is not allowed by spec.namespaces of the consumer's TenantPolicy: the consumer needs another \
                 name, or the policy allows this one"
            ));
        }

        Ok(())
    }
}

/// Returns the Pod Security Standard that a consumer's namespaces enforce.
pub(super) fn pod_security(policy: Option<&TenantPolicySpec>) -> &'static str {
    match policy.and_then(|it| it.pod_security).unwrap_or_default() {
        PodSecurity::Privileged => "privileged",
        PodSecurity::Baseline => "baseline",
        PodSecurity::Restricted => "restricted",
    }
}

/// Returns whether a text matches a pattern in which `*` stands for any characters. Takes linear time for each `*`.
fn matches_glob(glob: &str, text: &str) -> bool {
    let Some((prefix, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(mut text) = text.strip_prefix(prefix) else {
        return false;
    };
    let mut parts = rest.split('*').collect::<Vec<_>>();
    let suffix = parts.pop().unwrap_or_default();
    for part in parts {
        // The first occurrence leaves the most for the other parts.
        let Some(position) = text.find(part) else {
            return false;
        };
        text = &text[position + part.len()..];
    }

    text.ends_with(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn check(namespaces: Value, name: &str) -> Result<(), String> {
        let spec = json!({"namespaces": namespaces});
        let policy = TenantPolicy::new("rome", from_value(spec).unwrap());
        Limits::new(Some(&policy), "liqo").check(name)
    }

    #[test]
    fn patterns_match_whole_names() {
        for (glob, text, expected) in [
            ("rome-shop", "rome-shop", true),
            ("rome-shop", "rome-shop2", false),
            ("rome-*", "rome-shop", true),
            ("rome-*", "rome-", true),
            ("rome-*", "xrome-shop", false),
            ("*-rome", "shop-rome", true),
            ("*-rome", "shop-rome2", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*", "anything", true),
            ("**", "", true),
        ] {
            assert_eq!(matches_glob(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn names_are_allowed_and_denied_by_the_policy() {
        let allowed = json!({"allowedNames": ["rome-*"], "deniedNames": ["rome-admin"]});
        assert_eq!(check(allowed.clone(), "rome-shop"), Ok(()));
        assert!(check(allowed.clone(), "shop").is_err());
        assert!(check(allowed, "rome-admin").is_err());
        assert_eq!(check(json!({"deniedNames": ["x"]}), "shop"), Ok(()));
        assert!(check(json!({"allowedNames": []}), "shop").is_err());
    }

    #[test]
    fn names_of_the_cluster_itself_are_reserved() {
        for name in [
            "kube-system",
            "kube-x",
            "default",
            "liqo",
            "liqo-storage",
            "A",
            "",
        ] {
            assert!(check(json!({}), name).is_err(), "{name}");
        }
        assert!(Limits::new(None, "liqo").check("kube-public").is_err());
        assert_eq!(Limits::new(None, "liqo").check("shop-rome"), Ok(()));
    }

    #[test]
    fn the_number_of_namespaces_has_a_default() {
        assert_eq!(Limits::new(None, "liqo").count_max(), 100);
    }
}
