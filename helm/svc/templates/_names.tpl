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

{{- define "svc.labels" -}}
{{ include "svc.selector" . }}
app.kubernetes.io/part-of: svc
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "svc.metadata" -}}
name: {{ include "svc.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "svc.labels" . | nindent 2 }}
{{- end -}}

{{/* The image of a component. A digest takes precedence over the tag. */}}
{{- define "svc.image" -}}
{{- $own := (index .root.Values .component).image -}}
{{- $repository := default (printf "%s/svc-%s" (trimSuffix "/" .root.Values.image.registry) .component) $own.repository -}}
{{- if $own.digest -}}
{{ $repository }}@{{ $own.digest }}
{{- else -}}
{{ $repository }}:{{ default .root.Chart.AppVersion .root.Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The host of publicUrl. */}}
{{- define "svc.host" -}}
{{- (urlParse .Values.publicUrl).hostname -}}
{{- end -}}

{{/* The enabled components, as JSON. */}}
{{- define "svc.components" -}}
{{- $enabled := list -}}
{{- range $component := list "identity" "session" "ingest" -}}
{{- if (index $.Values $component).enabled -}}{{- $enabled = append $enabled $component -}}{{- end -}}
{{- end -}}
{{- toJson $enabled -}}
{{- end -}}
