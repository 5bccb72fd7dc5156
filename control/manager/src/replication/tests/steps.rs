//! The life of a request, interrupted after each of its requests: the manager crashes, or the provider's API server is away
//! for three minutes.

use super::peering::{Peering, milan};
use std::time::Duration;

/// Time for which the provider's API server is away.
const AWAY: Duration = Duration::from_secs(180);

/// Longer than the longest backoff of a request.
const CONVERGED: Duration = Duration::from_secs(120);

/// Time for which the peering runs before the next interruption is considered.
const STEP: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Crash,
    Away,
}

/// A peering that is interrupted once, after its `number`th request.
struct Interrupted {
    peering: Peering,
    fault: Fault,
    number: usize,
    is_done: bool,
}

impl Interrupted {
    /// Runs until the peering has converged.
    fn run(&mut self) {
        for _ in 0..600 {
            if self.is_done || self.peering.simulation.log().len() >= self.number {
                break;
            }
            self.peering.run(STEP);
        }
        if !self.is_done && self.peering.simulation.log().len() >= self.number {
            self.is_done = true;
            let simulation = &mut self.peering.simulation;
            match self.fault {
                Fault::Crash => {
                    simulation.crash(0);
                    simulation.crash(1);
                }
                Fault::Away => {
                    simulation.partition(&milan());
                    simulation.pass(AWAY);
                    simulation.heal(&milan());
                }
            }
        }
        self.peering.run(CONVERGED);
    }
}

/// Returns the number of requests of the life that `fault` interrupts after request `number`.
fn life(fault: Fault, number: usize) -> usize {
    let mut life = Interrupted {
        peering: Peering::new(number as u64),
        fault,
        number,
        is_done: false,
    };
    let place = format!("{fault:?} after request {number}");
    life.peering.put_slice("milan", "2");
    life.run();
    let replica = life.peering.replica("milan").expect(&place);
    let slice = life.peering.slice("milan").expect(&place);
    assert_eq!(slice["spec"], replica["spec"], "{place}");

    life.peering.grant("milan");
    life.run();
    let slice = life.peering.slice("milan").expect(&place);
    assert_eq!(slice["status"]["resources"]["cpu"], "2", "{place}");

    life.peering.put_slice("milan", "3");
    life.run();
    let replica = life.peering.replica("milan").expect(&place);
    assert_eq!(replica["spec"]["resources"]["cpu"], "3", "{place}");

    life.peering.delete_slice("milan");
    life.run();
    assert!(life.peering.slice("milan").is_none(), "{place}");
    assert!(life.peering.replica("milan").is_none(), "{place}");
    life.peering.simulation.log().len()
}

#[test]
fn a_request_survives_a_crash_of_all_replicas_and_an_absent_provider_after_each_step() {
    let requests = life(Fault::Crash, usize::MAX);
    assert!(requests > 8, "{requests}");
    for fault in [Fault::Crash, Fault::Away] {
        for number in 1..=requests {
            life(fault, number);
        }
    }
}
