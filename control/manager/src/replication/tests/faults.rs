//! Random faults.

use super::peering::{Peering, milan};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Grant(u8),
    Refuse(bool),
    Partition(bool),
    Crash(usize),
    HandOver(usize),
    Run(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..3, 1_u8..4).prop_map(|(slice, cpu)| Step::Put(slice, cpu)),
        (0_u8..3).prop_map(Step::Delete),
        (0_u8..3).prop_map(Step::Grant),
        any::<bool>().prop_map(Step::Refuse),
        any::<bool>().prop_map(Step::Partition),
        (0_usize..2).prop_map(Step::Crash),
        (0_usize..2).prop_map(Step::HandOver),
        (1_u16..3000).prop_map(Step::Run),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// After any faults, replicas and objects are the same.
    #[test]
    fn replicas_follow_the_objects_after_any_faults(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut peering = Peering::new(seed);
        for step in &steps {
            match step {
                Step::Put(slice, cpu) => peering.put_slice(&format!("slice-{slice}"), &cpu.to_string()),
                Step::Delete(slice) => peering.delete_slice(&format!("slice-{slice}")),
                Step::Grant(slice) => {
                    if peering.replica(&format!("slice-{slice}")).is_some() {
                        peering.grant(&format!("slice-{slice}"));
                    }
                }
                Step::Refuse(is_refusing) => peering.simulation.cluster(&milan()).refuse(*is_refusing),
                Step::Partition(true) => peering.simulation.partition(&milan()),
                Step::Partition(false) => peering.simulation.heal(&milan()),
                Step::Crash(replica) => peering.simulation.crash(*replica),
                Step::HandOver(replica) => peering.simulation.hand_over(*replica),
                Step::Run(millis) => peering.run(Duration::from_millis((*millis).into())),
            }
        }
        peering.simulation.heal(&milan());
        peering.simulation.cluster(&milan()).refuse(false);
        peering.run(Duration::from_secs(600));

        for slice in 0..3 {
            let name = format!("slice-{slice}");
            let (slice, replica) = (peering.slice(&name), peering.replica(&name));
            prop_assert_eq!(slice.is_some(), replica.is_some(), "{}", name);
            let (Some(slice), Some(replica)) = (slice, replica) else {
                continue;
            };
            prop_assert!(slice["metadata"]["deletionTimestamp"].is_null());
            prop_assert_eq!(&slice["spec"], &replica["spec"]);
            if !replica["status"].is_null() {
                prop_assert_eq!(&slice["status"], &replica["status"]);
            }
        }
        let before = peering.requests();
        peering.run(Duration::from_secs(3600));
        prop_assert_eq!(peering.requests(), before);
    }
}
