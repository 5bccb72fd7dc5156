//! Parses the path and the query of requests.

use serde_json::Value;

/// The object or list at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The path of the kind's objects in all namespaces, such as `/api/v1/pods`.
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl Target {
    /// Parses a path. The path of a subresource is that of its object.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let root = parts.next()?;
        let group = match root {
            "api" => format!("/api/{}", parts.next()?),
            "apis" => format!("/apis/{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<_> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let (resource, name) = (rest.first()?, rest.get(1));

        Some(Self {
            kind: format!("{group}/{resource}"),
            namespace,
            name: name.map(|name| (*name).to_owned()),
        })
    }

    /// Returns whether the path is that of one object.
    pub(crate) fn is_object(&self) -> bool {
        self.name.is_some()
    }

    /// Returns the path of the object. `name` is its name if the path lacks it.
    pub(crate) fn path(&self, name: Option<&str>) -> String {
        let name = self.name.as_deref().or(name).unwrap_or_default();
        let Some(namespace) = &self.namespace else {
            return format!("{}/{name}", self.kind);
        };
        let (group, resource) = self.kind.rsplit_once('/').unwrap_or_default();

        format!("{group}/namespaces/{namespace}/{resource}/{name}")
    }

    /// Returns whether the list at this path contains the object at another path.
    pub(crate) fn holds(&self, path: &str) -> bool {
        Self::parse(path).is_some_and(|object| {
            object.kind == self.kind
                && (self.namespace.is_none() || self.namespace == object.namespace)
        })
    }
}

/// Returns the percent-decoded value of a parameter of a query.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;

    Some(decoded(value))
}

/// Returns whether an object is selected by the parameters of a list.
pub(crate) fn is_selected(query: &str, object: &Value) -> bool {
    let labels = parameter(query, "labelSelector").unwrap_or_default();
    let fields = parameter(query, "fieldSelector").unwrap_or_default();
    let metadata = &object["metadata"];
    let has_label = |term: &str| match (term.split_once('='), term.strip_prefix('!')) {
        (Some((key, value)), _) => metadata["labels"][key] == value.trim_start_matches('='),
        (None, Some(key)) => metadata["labels"][key].is_null(),
        (None, None) => !metadata["labels"][term].is_null(),
    };
    let has_field = |term: &str| {
        let Some((path, value)) = term.split_once('=') else {
            return false;
        };
        let mut names = path.split('.');
        let field = names.try_fold(object, |object, name| object.get(name));
        field.is_some_and(|field| field == value)
    };
    let terms = |text: &str, has: &dyn Fn(&str) -> bool| {
        text.split(',').filter(|term| !term.is_empty()).all(has)
    };

    terms(&labels, &has_label) && terms(&fields, &has_field)
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        (bytes, rest) = match (first, code) {
            (b'%', Some(code)) => ([bytes, vec![code]].concat(), &tail[2..]),
            (b'+', _) => ([bytes, vec![b' ']].concat(), tail),
            _ => ([bytes, vec![*first]].concat(), tail),
        };
    }

    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_names_an_object_or_a_list() {
        let ip = Target::parse("/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/ips/a/status").unwrap();
        let all = Target::parse("/apis/ipam.liqo.io/v1alpha1/ips").unwrap();
        let namespace = Target::parse("/api/v1/namespaces/liqo").unwrap();

        assert_eq!(
            ip.path(None),
            "/apis/ipam.liqo.io/v1alpha1/namespaces/liqo/ips/a"
        );
        assert!(all.holds(&ip.path(None)) && !all.is_object());
        assert_eq!(namespace.path(None), "/api/v1/namespaces/liqo");
    }

    #[test]
    fn labels_and_names_are_selected() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "1"}}});

        for (query, is_expected) in [
            ("", true),
            ("labelSelector=x%3D1", true),
            ("labelSelector=x%3D1%2Cy", false),
            ("labelSelector=%21x", false),
            (
                "watch=true&labelSelector=%21y&fieldSelector=metadata.name%3Da",
                true,
            ),
            ("fieldSelector=metadata.name%3Db", false),
        ] {
            assert_eq!(is_selected(query, &object), is_expected, "{query}");
        }
    }
}
