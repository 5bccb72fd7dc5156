//! Families of metrics: the samples of several kubelets below one description each.

use std::collections::BTreeMap;

/// Families by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Families {
    families: BTreeMap<String, Family>,
    /// Length of all samples, in bytes.
    len: usize,
}

/// Description of a family. Both parts are optional in the text format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    /// Type of the metrics.
    pub(crate) kind: Option<&'static str>,
    /// Description for people, with its escapes.
    pub(crate) help: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
struct Family {
    description: Description,
    /// Lines, each with its end.
    samples: String,
}

impl Families {
    /// Has `write` append lines to a family. A family keeps its first description.
    pub(crate) fn add(
        &mut self,
        name: &str,
        description: &Description,
        write: impl FnOnce(&mut String),
    ) {
        if !self.families.contains_key(name) {
            let family = Family {
                description: description.clone(),
                samples: String::new(),
            };
            self.families.insert(name.to_owned(), family);
        }
        if let Some(family) = self.families.get_mut(name) {
            let before = family.samples.len();
            write(&mut family.samples);
            self.len += family.samples.len() - before;
        }
    }

    /// Appends the samples of another kubelet.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, family) in other.families {
            let Family {
                description,
                samples,
            } = family;
            self.add(&name, &description, |text| {
                if text.is_empty() {
                    *text = samples;
                } else {
                    text.push_str(&samples);
                }
            });
        }
    }

    /// Returns the length of all samples, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the text of each family that has samples, by name.
    pub(crate) fn into_texts(self) -> impl Iterator<Item = String> {
        let families = self.families.into_iter();
        let families = families.filter(|(_, family)| !family.samples.is_empty());
        families.map(|(name, family)| {
            let mut text = String::new();
            if let Some(help) = &family.description.help {
                text.push_str(&format!("# HELP {name} {help}\n"));
            }
            if let Some(kind) = family.description.kind {
                text.push_str(&format!("# TYPE {name} {kind}\n"));
            }
            text.push_str(&family.samples);
            text
        })
    }
}
