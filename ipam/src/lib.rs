//! Address arithmetic of a fabric of clusters: prefixes, pools, remapping.
