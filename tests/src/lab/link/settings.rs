//! Compares and restores the offloads and the MTU of a device.

use super::{End, ip};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

/// The settings of a network device that tests may change and must restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    mtu_bytes: u32,
    /// Features of `ethtool` that users can change, and whether each of them is on.
    features: BTreeMap<String, bool>,
}

impl Settings {
    /// Reads the current settings of a device.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn read(end: End<'_>) -> Result<Self> {
        let link = end
            .netns
            .exec("ip", &["-oneline", "link", "show", "dev", end.device], "")?;
        let features = end.netns.exec("ethtool", &["-k", end.device], "")?;

        Ok(Self {
            mtu_bytes: mtu(&link).with_context(|| format!("no MTU in {link:?}"))?,
            features: parse_features(&features),
        })
    }

    /// Returns a message for each setting that differs between `self` and `later`.
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let state = |on: bool| if on { "on" } else { "off" };
        let mut changes: Vec<_> = self
            .features
            .iter()
            .filter_map(|(name, &on)| {
                let now = *later.features.get(name)?;
                (now != on).then(|| format!("{name} was {} and is {}", state(on), state(now)))
            })
            .collect();
        if self.mtu_bytes != later.mtu_bytes {
            changes.push(format!(
                "the MTU was {} and is {}",
                self.mtu_bytes, later.mtu_bytes
            ));
        }

        changes
    }

    fn apply(&self, end: End<'_>) -> Result<()> {
        let now = Self::read(end)?;
        if now.mtu_bytes != self.mtu_bytes {
            let command = format!("link set dev {} mtu {}", end.device, self.mtu_bytes);
            ip(end.netns, &[command])?;
        }
        let changed = self
            .features
            .iter()
            .filter(|(name, on)| now.features.get(*name) != Some(*on));
        let mut arguments = vec!["-K", end.device];
        for (name, &on) in changed {
            arguments.extend([name.as_str(), if on { "on" } else { "off" }]);
        }
        if arguments.len() > 2 {
            end.netns.exec("ethtool", &arguments, "")?;
        }

        Ok(())
    }
}

/// The settings of some devices, which are restored when the value is dropped.
#[derive(Debug)]
pub struct Restore<'a> {
    devices: Vec<(End<'a>, Settings)>,
}

impl<'a> Restore<'a> {
    /// Reads the current settings of devices, to restore them later.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such device.
    pub fn of(ends: impl IntoIterator<Item = End<'a>>) -> Result<Self> {
        let devices = ends
            .into_iter()
            .map(|end| Ok((end, Settings::read(end)?)))
            .collect::<Result<_>>()?;

        Ok(Self { devices })
    }

    /// Restores the settings of all devices, and reports errors to the caller.
    ///
    /// # Errors
    ///
    /// Continues after an error with the next device, and returns the first error at the end.
    pub fn now(mut self) -> Result<()> {
        self.restore()
    }

    fn restore(&mut self) -> Result<()> {
        let outcomes: Vec<_> = self
            .devices
            .drain(..)
            .map(|(end, settings)| settings.apply(end))
            .collect();

        outcomes.into_iter().collect()
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::warn!("failed to restore a device: {error:#}");
        }
    }
}

/// Returns the number after the word `mtu` in a line of `ip link`.
fn mtu(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == "mtu")?;

    words.next()?.parse().ok()
}

/// Parses the output of `ethtool -k`.
///
/// Omits features that cannot be changed, and lines that summarize the indented lines below them.
fn parse_features(listing: &str) -> BTreeMap<String, bool> {
    let lines: Vec<_> = listing.lines().collect();
    let is_sum = |index: usize| {
        let next = lines.get(index + 1).copied().unwrap_or_default();
        next.starts_with('\t') && !lines[index].starts_with('\t')
    };

    (0..lines.len())
        .filter(|&index| !is_sum(index))
        .filter_map(|index| {
            let (name, state) = lines[index].trim().split_once(": ")?;
            match state {
                "on" => Some((name.to_owned(), true)),
                "off" => Some((name.to_owned(), false)),
                _ => None, // For example "off [fixed]", which cannot be changed.
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{connect, without_offloads};
    use super::*;
    use crate::fault::mtu;
    use crate::lab::Identity;
    use crate::lab::netns::Netns;

    #[test]
    fn sums_and_fixed_features_are_left_out() {
        let listing = "Features for va:\nrx-checksumming: on\nscatter-gather: on\n\
            \ttx-scatter-gather: on\n\ttx-gather-x: off [fixed]\nrx-gro-hw: off\n";

        let features = parse_features(listing);

        let expected = [
            ("rx-checksumming", true),
            ("rx-gro-hw", false),
            ("tx-scatter-gather", true),
        ];
        assert_eq!(
            features,
            expected.map(|(name, on)| (name.to_owned(), on)).into()
        );
    }

    #[test]
    fn a_changed_device_is_restored_even_after_an_error() {
        let identity = Identity::claim().unwrap();
        let [one, other] = ["one", "other"].map(|name| Netns::create(&identity, name).unwrap());
        let ends = [(&one, "va"), (&other, "vb")].map(|(netns, device)| End { netns, device });
        connect(ends[0], ends[1], 1500).unwrap();
        let before = ends.map(|end| Settings::read(end).unwrap());

        let fails = || -> Result<()> {
            let _restore = Restore::of(ends)?;
            ends.into_iter().try_for_each(without_offloads)?;
            mtu::set(ends, 1280)?;
            let changed = before[0].changes(&Settings::read(ends[0])?);
            assert!(changed.contains(&"the MTU was 1500 and is 1280".to_owned()));
            anyhow::bail!("after the changes")
        };
        fails().unwrap_err();

        for (end, before) in ends.into_iter().zip(before) {
            assert_eq!(before.changes(&Settings::read(end).unwrap()), [""; 0]);
        }
    }
}
