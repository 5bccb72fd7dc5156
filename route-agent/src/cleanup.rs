//! Takes everything of ours out of the kernel, and nothing else.

use crate::diff::diff;
use crate::kernel::{Error, Kernel};
use crate::settings::Settings;
use crate::state::State;

/// Removes all that carries our marks; returns what was removed.
///
/// Goes on after an error.
///
/// # Errors
///
/// Returns all errors if there were any.
pub(crate) async fn run(settings: Settings) -> Result<usize, Vec<Error>> {
    let mut kernel = Kernel::open(settings).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    let mut state = kernel.observe_what_can_be(&mut errors).await;
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
