//! Progress of a step.

/// Progress of a step, as a function of observed objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State<T> {
    /// The objects are absent or differ from the desired ones.
    Pending,
    /// The objects cannot be written yet. The text is the reason.
    Blocked(String),
    /// The objects are written, but a controller has not completed its part. The text names the
    /// missing part, with the remedy if one is known.
    Waiting(String),
    /// The step is complete.
    Ready(T),
}

impl<T> State<T> {
    /// Returns the state with another output.
    pub(crate) fn map<U>(self, output: impl FnOnce(T) -> U) -> State<U> {
        match self {
            Self::Blocked(reason) => State::Blocked(reason),
            Self::Pending => State::Pending,
            Self::Waiting(missing) => State::Waiting(missing),
            Self::Ready(value) => State::Ready(output(value)),
        }
    }
}
