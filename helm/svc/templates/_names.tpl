{{/* Names, labels and images. Helpers of a component take (dict "root" $ "component" "identity"). */}}

{{- define "svc.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 35 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 35 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 35 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "svc.name" -}}
{{- printf "%s-%s" (include "svc.fullname" .root) .component -}}
{{- end -}}

{{- define "svc.selector" -}}
app.kubernetes.io/name: svc
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of pods. They do not contain the chart version, because a change would restart every pod. */}}
{{- define "svc.podLabels" -}}
{{ include "svc.selector" . }}
app.kubernetes.io/part-of: svc
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod. */}}
{{- define "svc.podMetadata" -}}
labels:
  {{- include "svc.podLabels" . | nindent 2 }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "svc.labels" -}}
{{ include "svc.selector" . }}
app.kubernetes.io/part-of: svc
app.kubernetes.io/version: {{ include "svc.version" .root | trunc 63 | regexFind "^.*[a-zA-Z0-9]" | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "svc.metadata" -}}
name: {{ include "svc.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "svc.labels" . | nindent 2 }}
{{- end -}}

{{/* Name and labels of an object outside of namespaces. Releases of different namespaces can have the same name. */}}
{{- define "svc.clusterName" -}}
{{- printf "%s-%s" .root.Release.Namespace (include "svc.name" .) -}}
{{- end -}}

{{- define "svc.clusterMetadata" -}}
name: {{ include "svc.clusterName" . }}
labels:
  {{- include "svc.labels" . | nindent 2 }}
{{- end -}}

{{/* The version of the services: the tag of the images. */}}
{{- define "svc.version" -}}
{{- default .Chart.AppVersion .Values.image.tag -}}
{{- end -}}

{{/* Registry and path of the images. An umbrella chart can set it for all its charts. */}}
{{- define "svc.registry" -}}
{{- default (dig "imageRegistry" "" .Values.global) .Values.image.registry | trimSuffix "/" -}}
{{- end -}}

{{/* Reference of an image; takes (dict "root" $ "image" values "name" default). A digest takes precedence over the tag. */}}
{{- define "svc.imageReference" -}}
{{- $repository := default (printf "%s/%s" (include "svc.registry" .root) .name) .image.repository -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ include "svc.version" .root }}
{{- end -}}
{{- end -}}

{{- define "svc.image" -}}
{{- include "svc.imageReference" (dict "root" .root "image" (index .root.Values .component).image "name" (printf "svc-%s" .component)) -}}
{{- end -}}

{{/* The host of publicUrl. */}}
{{- define "svc.host" -}}
{{- (urlParse (include "svc.publicUrl" .)).hostname -}}
{{- end -}}

{{/* The enabled components, as JSON. */}}
{{- define "svc.components" -}}
{{- $enabled := list -}}
{{- range $component := list "identity" "session" "ingest" -}}
{{- if include "svc.installed" (dict "root" $ "component" $component) -}}{{- $enabled = append $enabled $component -}}{{- end -}}
{{- end -}}
{{- toJson $enabled -}}
{{- end -}}

{{/* The enabled components and the operator, as JSON. */}}
{{- define "svc.processes" -}}
{{- $processes := include "svc.components" . | fromJsonArray -}}
{{- if include "svc.installed" (dict "root" $ "component" "operator") -}}{{- $processes = append $processes "operator" -}}{{- end -}}
{{- toJson $processes -}}
{{- end -}}

{{/* "true" if the component is installed. */}}
{{- define "svc.installed" -}}
{{- if and .root.Values.enabled (index .root.Values .component).enabled -}}true{{- end -}}
{{- end -}}
