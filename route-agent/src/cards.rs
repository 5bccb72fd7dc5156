//! The features of network cards on which the speed of the fabric depends.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A feature of a card, as `ethtool` names it, and the effect of its lack.
struct Feature {
    name: &'static str,
    effect: &'static str,
}

/// The features in the order of the report. The figures are those of the bench's networks `uso` and `nouso`.
const FEATURES: [Feature; 3] = [
    Feature {
        name: "rx-gro",
        effect: "datagrams and overlay frames are not joined, which costs two thirds of the throughput: \
                 enable it with `ethtool -K {device} gro on`",
    },
    Feature {
        name: "tx-udp-segmentation",
        effect: "the kernel cuts the gateways' super-packets, about 0.6 s of CPU time per GB",
    },
    Feature {
        name: "tx-udp_tnl-segmentation",
        effect: "the kernel cuts overlay frames, about 0.5 to 0.8 s of CPU time per GB",
    },
];

/// A card that carries traffic between nodes, and the features that it lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Card {
    /// Name of the device.
    pub(crate) device: String,
    /// A line for each missing feature, with its effect.
    pub(crate) lacks: Vec<String>,
}

impl Card {
    /// Describes a device with the active features `active`.
    pub(crate) fn new(device: String, active: &BTreeSet<String>) -> Self {
        let missing = FEATURES.iter().filter(|it| !active.contains(it.name));
        let lacks = missing.map(|it| format!("{}: {}", it.name, it.effect));
        let lacks = lacks.map(|line| line.replace("{device}", &device));

        Self {
            lacks: lacks.collect(),
            device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(active: &[&str]) -> Card {
        let active = active.iter().map(|it| (*it).to_owned()).collect();

        Card::new("eth0".into(), &active)
    }

    #[test]
    fn a_card_with_all_features_lacks_nothing() {
        let all = FEATURES.map(|it| it.name);

        assert_eq!(card(&all).lacks, [""; 0]);
    }

    #[test]
    fn each_missing_feature_has_its_line() {
        for feature in &FEATURES {
            let others = FEATURES.iter().map(|it| it.name);
            let others: Vec<_> = others.filter(|it| *it != feature.name).collect();

            let card = card(&others);

            assert_eq!(card.lacks.len(), 1);
            assert!(card.lacks[0].starts_with(&format!("{}: ", feature.name)));
            assert!(!card.lacks[0].contains("{device}"));
        }
    }
}
