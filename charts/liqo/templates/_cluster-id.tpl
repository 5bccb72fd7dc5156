{{/*
Returns the cluster's ID. Fails if the values would change the ID of an installed cluster. The ID is not random,
so that the output stays the same if the chart is rendered again.
*/}}
{{- define "liqo.clusterID" -}}
{{- $given := .Values.discovery.config.clusterID -}}
{{- $existing := lookup "v1" "ConfigMap" .Release.Namespace "liqo-clusterid-configmap" -}}
{{- $present := dig "data" "CLUSTER_ID" "" ($existing | default dict) -}}
{{- $system := lookup "v1" "Namespace" "" "kube-system" -}}
{{- if and $given $present (ne $given $present) -}}
  {{- fail (printf "discovery.config.clusterID: the ID of this cluster is %q and cannot become %q: leave the value empty, or uninstall first" $present $given) -}}
{{- else if $present -}}
  {{- $present -}}
{{- else if $given -}}
  {{- $given -}}
{{- else if $system -}}
  {{- $system.metadata.uid -}}
{{- else -}}
  {{- fail "discovery.config.clusterID: give the cluster an ID, such as rome. The value is empty, and this rendering cannot read the ID from the cluster (helm template, Argo CD, --dry-run=client)" -}}
{{- end -}}
{{- end }}
