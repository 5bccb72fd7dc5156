//! Attaches the gateway's eBPF programs to two devices, and pins them.
//!
//! ```text
//! bpf attach OVERLAY TAP FOLDER   pins maps and links in FOLDER, on a BPF file system;
//!                                 prints counters, including those of replaced programs
//! bpf detach FOLDER               removes the pinned maps and links
//! ```

#![forbid(unsafe_code)]

use ebpf::{Datapath, Options};
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "usage: bpf attach OVERLAY TAP FOLDER | bpf detach FOLDER";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bpf: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("bpf: because {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    match *arguments {
        ["attach", overlay, tap, folder] => attach(overlay, tap, folder),
        ["detach", folder] => Ok(Datapath::cleanup(folder.as_ref())?),
        _ => Err(USAGE.into()),
    }
}

/// Attaches the programs, and prints counters above zero. Pinned maps and links outlive this
/// process.
fn attach(overlay: &str, tap: &str, folder: &str) -> Result<(), Box<dyn Error>> {
    let mut options = Options::new(overlay, tap);
    options.pin_dir = Some(folder.into());
    let datapath = Datapath::attach(options)?;

    println!("attached to {overlay} and {tap}");
    for (name, count) in datapath.counters()? {
        if count > 0 {
            println!("{name} {count}");
        }
    }

    Ok(())
}
