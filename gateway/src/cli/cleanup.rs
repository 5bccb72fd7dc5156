//! The command `gateway cleanup`.

use super::Instance;
use crate::shell::datapath_setup;
use anyhow::bail;
use clap::Args;
use ebpf_common::settings::Settings;
use std::io::Write;

/// Remove the state of a stopped gateway: namespace, devices, eBPF programs, status socket.
///
/// Removes only objects of this instance. Succeeds if there is nothing to remove.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  gateway cleanup --instance gateway")]
pub(super) struct Cleanup {
    #[command(flatten)]
    instance: Instance,
}

impl Cleanup {
    pub(super) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let socket = self.instance.socket();
        if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
            bail!(
                "gateway {} is running: stop it first, or name another --instance",
                self.instance.name
            );
        }
        let plan = datapath_setup::Plan {
            instance: self.instance.name,
            persistent: true,
            overlay_mtu: None,
            settings: Settings::default(),
            lanes: 1,
            workers: 1,
            log_drops: false,
        };
        let (mut removed, mut errors) = plan.remove();
        match std::fs::remove_file(&socket) {
            Ok(()) => removed.push(format!("socket {}", socket.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => errors.push(error.into()),
        }

        for object in &removed {
            writeln!(out, "removed {object}")?;
        }
        if removed.is_empty() && errors.is_empty() {
            writeln!(out, "nothing to remove")?;
        }
        if let Some(last) = errors.pop() {
            for error in errors {
                writeln!(out, "failed: {error:#}")?;
            }
            return Err(last);
        }

        Ok(())
    }
}
