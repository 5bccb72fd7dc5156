//! Reads the processor time and memory of processes and of the machine from `/proc`.

use anyhow::{Context as _, Result};
use nix::unistd::{SysconfVar, sysconf};
use std::fs;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Memory {
    /// The current resident set size.
    pub(super) resident: f64,
    /// The maximum of the resident set size since the start of the process or the last
    /// [`reset_peak`].
    pub(super) peak: f64,
}

/// Returns the processor time that these processes have used in user and kernel mode, in seconds.
///
/// # Errors
///
/// Returns an error if a process does not exist.
pub(super) fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| cpu_seconds_of(*pid)).sum()
}

fn cpu_seconds_of(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let ticks = ticks_of_process(&stat).with_context(|| format!("{path} has no times"))?;

    Ok(ticks / ticks_per_second()?)
}

/// Returns the processor time that all processes and the kernel have used, in seconds.
///
/// # Errors
///
/// Returns an error if `/proc/stat` cannot be read.
pub(super) fn machine_cpu_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("failed to read /proc/stat")?;
    let ticks = ticks_of_machine(&stat).context("/proc/stat has no times")?;

    Ok(ticks / ticks_per_second()?)
}

/// Returns the current and the peak resident memory of the largest of these processes.
///
/// # Errors
///
/// Returns an error if a process does not exist.
pub(super) fn memory(pids: &[u32]) -> Result<Memory> {
    let mut largest = Memory {
        resident: 0.0,
        peak: 0.0,
    };
    for pid in pids {
        let memory = memory_of_process(*pid)?;
        largest.resident = largest.resident.max(memory.resident);
        largest.peak = largest.peak.max(memory.peak);
    }

    Ok(largest)
}

fn memory_of_process(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;

    memory_of(&status).with_context(|| format!("{path} has no memory: has the process ended?"))
}

/// Resets the peaks of the resident set sizes of these processes.
///
/// # Errors
///
/// Returns an error if a process does not exist.
pub(super) fn reset_peak(pids: &[u32]) -> Result<()> {
    pids.iter().try_for_each(|pid| reset_peak_of(*pid))
}

fn reset_peak_of(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");

    // According to proc_pid_clear_refs(5), the value 5 resets the peak.
    fs::write(&path, "5").with_context(|| format!("failed to write {path}"))
}

/// Sums fields 14 and 15 (utime and stime, counted from 1) of `/proc/PID/stat`.
fn ticks_of_process(stat: &str) -> Option<f64> {
    // Field 2 is the process name, which may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;

    Some(user + system)
}

/// Sums the times user, nice, system, irq and softirq in the first line of `/proc/stat`.
fn ticks_of_machine(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<f64> = line
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    let busy = [0, 1, 2, 5, 6];

    busy.iter().map(|&index| fields.get(index)).sum()
}

fn memory_of(status: &str) -> Option<Memory> {
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kibibytes * 1024.0)
    };

    Some(Memory {
        resident: bytes("VmRSS:")?,
        peak: bytes("VmHWM:")?,
    })
}

fn ticks_per_second() -> Result<f64> {
    let ticks = sysconf(SysconfVar::CLK_TCK)
        .context("failed to read the clock's rate")?
        .context("the clock has no rate")?;

    Ok(ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "26110 (a) b (c) S 26089 26083 19999 0 -1 4194560 8737 124 0 0 67 227 0 0 20 0";

        assert_eq!(ticks_of_process(stat), Some(294.0));
    }

    #[test]
    fn waiting_and_stolen_time_is_not_used() {
        let stat = "cpu  10 20 30 4000 5000 60 70 8000 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";

        assert_eq!(ticks_of_machine(stat), Some(190.0));
    }

    #[test]
    fn memory_is_in_bytes() {
        let status = "Name:\tgateway\nVmHWM:\t   32892 kB\nVmRSS:\t    1024 kB\n";

        assert_eq!(
            memory_of(status),
            Some(Memory {
                resident: 1_048_576.0,
                peak: 33_681_408.0
            })
        );
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let pid = std::process::id();

        assert!(cpu_seconds(&[pid]).unwrap() >= 0.0);
        assert!(machine_cpu_seconds().unwrap() > 0.0);
        assert!(memory(&[pid]).unwrap().resident > 0.0);
    }

    #[test]
    fn a_peak_can_be_reset() {
        let pid = std::process::id();
        let large = vec![1u8; 64 << 20];
        std::hint::black_box(&large);
        drop(large);
        let before = memory(&[pid]).unwrap().peak;

        reset_peak(&[pid]).unwrap();

        assert!(memory(&[pid]).unwrap().peak < before);
    }
}
