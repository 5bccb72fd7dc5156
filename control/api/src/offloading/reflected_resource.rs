//! A further kind of objects that virtual kubelets reflect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// Objects with the annotation `liqo.io/allow-reflection` are reflected.
pub const ALLOW_LIST: &str = "AllowList";
/// All objects but those with the annotation `liqo.io/skip-reflection` are reflected.
pub const DENY_LIST: &str = "DenyList";

/// Longest name of a resource or a version, in bytes (DNS label, RFC 1123).
const LABEL_LEN_MAX: usize = 63;

/// Longest name of a group, in bytes (DNS subdomain, RFC 1123).
const GROUP_LEN_MAX: usize = 253;

/// Groups whose kinds are never reflected as further ones, and why. A group stands for its subdomains, too.
const RESERVED: [(&str, Reserved); 15] = [
    ("liqo.io", Reserved::Liqo),
    ("apps", Reserved::Workload),
    ("batch", Reserved::Workload),
    ("discovery.k8s.io", Reserved::Reflected),
    ("events.k8s.io", Reserved::Reflected),
    ("rbac.authorization.k8s.io", Reserved::Rights),
    ("authorization.k8s.io", Reserved::Rights),
    ("authentication.k8s.io", Reserved::Rights),
    ("certificates.k8s.io", Reserved::Rights),
    ("admissionregistration.k8s.io", Reserved::Rights),
    ("apiextensions.k8s.io", Reserved::Rights),
    ("apiregistration.k8s.io", Reserved::Rights),
    ("coordination.k8s.io", Reserved::Cluster),
    ("storage.k8s.io", Reserved::Cluster),
    ("metrics.k8s.io", Reserved::Cluster),
];

#[derive(Clone, Copy, Debug)]
enum Reserved {
    Liqo,
    Workload,
    Reflected,
    Rights,
    Cluster,
}

/// A further kind of objects that virtual kubelets reflect.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations()))]
pub struct ReflectedResource {
    /// API group, for example `cert-manager.io`.
    #[schemars(length(max = 253))]
    pub group: String,

    /// Version in the group, for example `v1`. Both clusters must serve it.
    #[schemars(length(min = 1, max = 63))]
    pub version: String,

    /// Plural name, for example `certificates`.
    #[schemars(length(min = 1, max = 63))]
    pub resource: String,

    /// `AllowList` or `DenyList`, the default.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [ALLOW_LIST, DENY_LIST]))]
    pub type_: Option<String>,

    /// Whether the status of the provider's object is written to the object of this cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub status: bool,
}

impl ReflectedResource {
    /// Returns whether only objects with the annotation `liqo.io/allow-reflection` are reflected.
    pub fn is_allow_list(&self) -> bool {
        self.type_.as_deref() == Some(ALLOW_LIST)
    }

    /// Returns resource and group as Kubernetes names them, for example `certificates.cert-manager.io`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// Checks the names, and that the kind may be reflected.
    ///
    /// # Errors
    ///
    /// Returns the reason.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.group.is_empty() {
            return Err("kinds of the core group are reflected already, or never");
        }
        if !is_label(&self.resource) || !is_label(&self.version) || !is_domain(&self.group) {
            return Err("no GROUP, VERSION and plural name of a resource");
        }
        if !matches!(self.type_.as_deref(), None | Some(ALLOW_LIST | DENY_LIST)) {
            return Err("the type is not AllowList or DenyList");
        }
        if (self.group.as_str(), self.resource.as_str()) == ("networking.k8s.io", "ingresses") {
            return Err(Reserved::Reflected.reason());
        }
        let is_of = |group: &str| {
            let rest = self.group.strip_suffix(group);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let reserved = RESERVED.iter().find(|(group, _)| is_of(group));

        reserved.map_or(Ok(()), |(_, it)| Err(it.reason()))
    }
}

impl Reserved {
    fn reason(self) -> &'static str {
        match self {
            Self::Liqo => "kinds of Liqo are never reflected",
            Self::Workload => "its pods would run in both clusters",
            Self::Reflected => "it is reflected already",
            Self::Rights => "rights and policies of a cluster are never reflected",
            Self::Cluster => "it describes one cluster",
        }
    }
}

/// Returns the rules by which the API server refuses what [`ReflectedResource::check`] refuses because of group and resource.
fn validations() -> Value {
    let groups = RESERVED.map(|(group, _)| group.replace('.', "[.]"));
    let groups = groups.join("|");
    json!([{
        "rule": format!(
            "self.group != '' && !self.group.matches('(^|[.])({groups})$') \
             && !(self.group == 'networking.k8s.io' && self.resource == 'ingresses')"
        ),
        "messageExpression": "self.resource + '.' + self.group + ' is reflected already, or must not be reflected'",
    }])
}

/// Writes a resource as the virtual kubelet's flag `--reflected-resource` has it:
/// `certificates.v1.cert-manager.io:DenyList:status`.
impl fmt::Display for ReflectedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let type_ = self.type_.as_deref().unwrap_or(DENY_LIST);
        write!(
            f,
            "{}.{}.{}:{type_}",
            self.resource, self.version, self.group
        )?;
        if self.status {
            f.write_str(":status")?;
        }
        Ok(())
    }
}

impl FromStr for ReflectedResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let names = parts.next().unwrap_or_default();
        let mut names = names.splitn(3, '.').map(str::to_owned);
        let mut name = || names.next().unwrap_or_default();
        let (resource, version, group) = (name(), name(), name());
        let type_ = parts.next().map(str::to_owned);
        let status = match (parts.next(), parts.next()) {
            (None, None) => false,
            (Some("status"), None) => true,
            _ => {
                return Err(format!(
                    "`{text}`: use RESOURCE.VERSION.GROUP:TYPE[:status]"
                ));
            }
        };
        let parsed = Self {
            group,
            version,
            resource,
            type_,
            status,
        };
        parsed
            .check()
            .map_err(|reason| format!("`{text}`: {reason}"))?;

        Ok(parsed)
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';

    (1..=LABEL_LEN_MAX).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_domain(text: &str) -> bool {
    text.len() <= GROUP_LEN_MAX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_written_as_it_is_parsed() {
        for text in [
            "certificates.v1.cert-manager.io:DenyList",
            "certificates.v1.cert-manager.io:AllowList:status",
            "poddisruptionbudgets.v1.policy:DenyList:status",
        ] {
            let parsed: ReflectedResource = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
        let short: ReflectedResource = "networkpolicies.v1.networking.k8s.io".parse().unwrap();
        assert!(!short.is_allow_list() && !short.status);
        assert_eq!(short.name(), "networkpolicies.networking.k8s.io");
    }

    #[test]
    fn kinds_that_are_reflected_already_or_never_are_refused_by_name() {
        for (text, reason) in [
            ("pods.v1", "core group"),
            ("secrets.v1.:DenyList", "core group"),
            ("nodes.v1", "core group"),
            ("ingresses.v1.networking.k8s.io", "reflected already"),
            ("endpointslices.v1.discovery.k8s.io", "reflected already"),
            ("events.v1.events.k8s.io", "reflected already"),
            ("roles.v1.rbac.authorization.k8s.io", "rights"),
            ("leases.v1.coordination.k8s.io", "one cluster"),
            ("storageclasses.v1.storage.k8s.io", "one cluster"),
            ("deployments.v1.apps", "both clusters"),
            ("jobs.v1.batch", "both clusters"),
            ("shadowpods.v1beta1.offloading.liqo.io", "Liqo"),
            ("widgets.v1.liqo.io", "Liqo"),
            ("widgets/status.v1.example.com", "plural name"),
            ("*.v1.example.com", "plural name"),
            ("widgets.v1.*", "plural name"),
            ("widgets.v1.example.com:Maybe", "AllowList"),
            ("widgets.v1.example.com:DenyList:spec", "[:status]"),
            ("widgets.v1.example.com:DenyList:status:x", "[:status]"),
        ] {
            let error = text.parse::<ReflectedResource>().unwrap_err();
            assert!(error.contains(text) && error.contains(reason), "{error}");
        }
        for text in ["widgets.v1.apps.example.com", "widgets.v1.notliqo.io"] {
            assert!(text.parse::<ReflectedResource>().is_ok(), "{text}");
        }
    }
}
