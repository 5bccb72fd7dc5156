//! Images of virtual kubelets.

/// Longest reference of an image that is accepted.
const LEN_MAX: usize = 512;

/// Registries and organizations of upstream's images.
const UPSTREAM: [&str; 4] = ["ghcr.io/liqotech/", "docker.io/liqo/", "liqotech/", "liqo/"];

/// Returns whether a text can be the reference of an image.
pub(super) fn is_image(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:@".contains(&byte);

    !text.is_empty() && text.len() <= LEN_MAX && text.bytes().all(is_allowed)
}

/// Returns whether an image is upstream's, which refuses flags of later versions, runs as root, serves no probes, and reads
/// its credentials with rights that this project does not give.
pub(super) fn is_upstream(image: &str) -> bool {
    UPSTREAM.into_iter().any(|prefix| image.starts_with(prefix))
}
