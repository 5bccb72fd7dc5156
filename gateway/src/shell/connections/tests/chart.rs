//! The rights of the gateway in the chart.

use super::*;
use chart_tests::roles::assert_exact;
use control_source::{Scope, registrations};

#[test]
fn the_charts_roles_are_the_rights_that_the_gateway_needs() {
    let state = Arc::new(Mutex::new(State::new("gw-1")));
    let mut all = registrations("liqo", Scope::Gateway);

    all.extend(Connections(state).resources());

    assert_exact("liqo-gateway", "liqo", &all, &[]);
}
