{{/* Parts of a trial (`trial.enabled`): Postgres, NATS and a proxy, with one Secret that a Job creates. */}}

{{/* "true" if the trial is installed. */}}
{{- define "svc.trial" -}}
{{- if and .Values.enabled .Values.trial.enabled -}}true{{- end -}}
{{- end -}}

{{/* "true" if the trial has a proxy: without it and a route, the services have no common address. */}}
{{- define "svc.trial.proxy" -}}
{{- if and (include "svc.trial" .) (not .Values.ingress.enabled) (not .Values.gateway.enabled) -}}true{{- end -}}
{{- end -}}

{{/* Name of the Secret. */}}
{{- define "svc.trial.secret" -}}
{{- include "svc.name" (dict "root" . "component" "trial") -}}
{{- end -}}

{{/* A key of a Secret as JSON {secret, key}; takes (dict "root" $ "purpose" "database" "name" "identity"). In a trial, one Secret contains
     the keys <purpose>-<name>. */}}
{{- define "svc.secretKey" -}}
{{- $values := index .root.Values .purpose -}}
{{- if include "svc.trial" .root -}}
{{- toJson (dict "secret" (include "svc.trial.secret" .root) "key" (printf "%s-%s" .purpose .name)) -}}
{{- else -}}
{{- toJson (dict "secret" $values.existingSecret "key" (get $values.keys .name)) -}}
{{- end -}}
{{- end -}}

{{/* Settings of the streams as JSON: the values, or those for the single NATS server of a trial. */}}
{{- define "svc.stream" -}}
{{- $stream := .Values.nats.stream -}}
{{- $small := dict "replicas" 1 "durability" "dev" "maxBytes" (default "256MiB" $stream.maxBytes) -}}
{{- ternary (merge $small $stream) $stream (eq (include "svc.trial" .) "true") | toJson -}}
{{- end -}}

{{/* Number of pods of a component without autoscaling. */}}
{{- define "svc.replicas" -}}
{{- ternary 1 (index .root.Values .component).replicas (eq (include "svc.trial" .root) "true") | toJson -}}
{{- end -}}

{{/* Public origin; in a trial, by default the address of `kubectl port-forward`. */}}
{{- define "svc.publicUrl" -}}
{{- ternary "http://localhost:8080" "" (eq (include "svc.trial.proxy" .) "true") | default .Values.publicUrl | trimSuffix "/" -}}
{{- end -}}

{{/* Image and settings of the container of a server; takes (dict "root" $ "own" values). */}}
{{- define "svc.trial.container" -}}
{{- $image := .own.image -}}
image: {{ ternary (printf "%s@%s" $image.repository $image.digest) (printf "%s:%s" $image.repository $image.tag) (ne $image.digest "") | quote }}
{{ include "svc.container.base" . }}
resources:
  {{- toYaml .own.resources | nindent 2 }}
{{- end -}}

{{/* Volume `data` of a server: a claim that is deleted with the StatefulSet, or a directory of the pod. */}}
{{- define "svc.trial.claims" -}}
{{- with .Values.trial.volumeSize -}}
persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOnce]
      resources:
        requests:
          storage: {{ . }}
{{- end -}}
{{- end -}}

{{/* Service and StatefulSet of a server; takes (dict "root" $ "component" "trial-postgres" "port" 5432 "pod" spec). */}}
{{- define "svc.trial.server" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  type: ClusterIP
  selector:
    {{- include "svc.selector" . | nindent 4 }}
  ports:
    - name: public
      port: {{ .port }}
      targetPort: public
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  replicas: 1
  serviceName: {{ include "svc.name" . }}
  selector:
    matchLabels:
      {{- include "svc.selector" . | nindent 6 }}
  {{- include "svc.trial.claims" .root | nindent 2 }}
  template:
    metadata:
      {{- include "svc.podMetadata" . | nindent 6 }}
    spec:
      {{- .pod | nindent 6 }}
        {{- if not .root.Values.trial.volumeSize }}
        - name: data
          emptyDir:
            sizeLimit: 2Gi
        {{- end }}
{{- end -}}

{{/* A Job that runs a subcommand of `svc-identity trial`; takes (dict "root" $ "component" "trial-secret" "pod" spec). Its name contains a digest of
     its pod, because a Job is immutable. */}}
{{- define "svc.trial.job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "svc.name" . }}-{{ printf "%s\n%s" (include "svc.podMetadata" (merge (dict "own" .root.Values.migrations) .)) .pod | sha256sum | trunc 10 }}
  namespace: {{ .root.Release.Namespace | quote }}
  {{- include "svc.owner" (dict "root" .root "account" (include "svc.name" (dict "root" .root "component" "trial-secret"))) | nindent 2 }}
  labels:
    {{- include "svc.labels" . | nindent 4 }}
spec:
  activeDeadlineSeconds: 1200
  backoffLimit: 10
  template:
    metadata:
      {{- include "svc.podMetadata" (merge (dict "own" .root.Values.migrations) .) | nindent 6 }}
    spec:
      {{- .pod | nindent 6 }}
{{- end -}}

{{/* Accepts connections to the port `public` from the components `from` and the peers `peers`; from all, if both are empty. */}}
{{- define "svc.trial.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "svc.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  {{- if hasKey . "from" }}
  ingress:
    - ports:
        - port: public
      {{- if or .from .peers }}
      from:
        {{- with .peers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- range .from }}
        - podSelector:
            matchLabels:
              {{- include "svc.selector" (dict "root" $.root "component" .) | nindent 14 }}
        {{- end }}
      {{- end }}
  {{- end }}
{{- end -}}
