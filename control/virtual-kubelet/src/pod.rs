//! A pod of this cluster, and the pod at the provider that runs in its place.

pub(crate) mod forge;
pub(crate) mod kept;
pub(crate) mod status;

#[cfg(test)]
mod tests;
