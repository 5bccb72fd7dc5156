use super::peering::Peering;

mod classes;
mod conflicts;
mod endpointslice;
mod event;
mod events;
mod exclusions;
mod faults;
mod golden;
mod immutable;
mod ingress;
pub(crate) mod issuing;
mod omitted;
mod others;
mod reflection;
mod rings;
mod shop;
mod side;
mod token;
mod tokens;
mod transformations;

/// Returns the peering of the consumer `rome` with the provider `milan`.
fn peering() -> Peering {
    Peering {
        origin: "rome".to_owned(),
        destination: "milan".to_owned(),
        ..Peering::default()
    }
}
