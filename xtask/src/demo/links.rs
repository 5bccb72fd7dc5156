//! The settings of the laboratory's network links. Every check must restore the settings that it
//! changes.

use super::scenario::Scenario;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use tests::lab::link::End;
use tests::lab::link::settings::Settings;
use tests::lab::netns::Netns;

/// The folder in which named network namespaces are mounted.
const NAMESPACES: &str = "/run/netns";

/// The settings of all links, by network namespace and device.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<(String, String), Settings>);

impl Links {
    /// Reads the settings of all links in the laboratory's namespaces.
    ///
    /// # Errors
    ///
    /// Returns an error if a namespace cannot be entered.
    pub(super) fn observe(scenario: &Scenario) -> Result<Self> {
        let id = scenario.lab.identity().id();
        let entries = fs::read_dir(NAMESPACES).context("failed to list the namespaces")?;
        let mut links = BTreeMap::new();
        for entry in entries {
            let entry = entry.context("failed to list the namespaces")?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.split('-').any(|part| part == id) {
                continue;
            }
            let file =
                File::open(entry.path()).with_context(|| format!("failed to open {name}"))?;
            let netns = Netns::adopt(&name, file);
            for device in devices(&netns)? {
                let end = End {
                    netns: &netns,
                    device: &device,
                };
                links.insert((name.clone(), device.clone()), Settings::read(end)?);
            }
        }

        Ok(Self(links))
    }

    /// Describes each setting that differs in `later`. Skips links that exist only in `self` or
    /// only in `later`, because the links of a killed gateway disappear.
    pub(super) fn changes(&self, later: &Self) -> Vec<String> {
        self.0
            .iter()
            .filter_map(|(link, settings)| Some((link, settings.changes(later.0.get(link)?))))
            .flat_map(|((netns, device), changes)| {
                changes
                    .into_iter()
                    .map(move |change| format!("{device} in {netns}: {change}"))
            })
            .collect()
    }
}

/// Returns the devices of a namespace except `lo`.
fn devices(netns: &Netns) -> Result<Vec<String>> {
    let list = || -> nix::Result<Vec<String>> {
        let interfaces = nix::net::if_::if_nameindex()?;
        let names = interfaces
            .into_iter()
            .map(|it| it.name().to_string_lossy().into_owned());
        Ok(names.filter(|name| name != "lo").collect())
    };

    netns
        .run(list)
        .with_context(|| format!("failed to list the devices of {}", netns.name()))
}
