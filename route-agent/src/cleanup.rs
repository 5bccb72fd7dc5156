//! Removes all kernel objects of the agent.

use crate::diff::diff;
use crate::kernel::{Error, Kernel};
use crate::settings::Settings;
use crate::state::State;

/// Removes all kernel objects of an agent with these settings. Returns the number of removed
/// objects.
///
/// # Errors
///
/// If an object cannot be removed, the function continues with the next object. It returns all
/// errors at the end.
pub(crate) async fn run(settings: Settings) -> Result<usize, Vec<Error>> {
    let mut kernel = Kernel::open(settings).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let mut state = kernel.observe_best_effort(&mut errors).await;
    let mut removed = 0;
    for op in diff(&state, &State::default()) {
        match kernel.apply(&op, &state).await {
            Ok(()) => removed += 1,
            Err(error) => errors.push(error),
        }
        state.apply(&op);
    }

    if errors.is_empty() {
        Ok(removed)
    } else {
        Err(errors)
    }
}
