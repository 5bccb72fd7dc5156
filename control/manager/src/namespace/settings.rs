//! Settings of the namespace controller.

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo.
    pub(crate) namespace: String,
    /// Whether virtual kubelets run, which need rights in offloaded namespaces.
    pub(crate) has_virtual_kubelets: bool,
}
