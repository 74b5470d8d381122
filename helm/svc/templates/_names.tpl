{{/* Names, labels and images. Helpers of a component take (dict "root" $ "component" "identity"). */}}

{{/* Name of the installation, at most 35 characters; unique in the namespace. In an umbrella chart, it always contains the chart name, which an
     alias replaces, so that two of its charts have different names. A long name ends with a digest of the complete one. */}}
{{- define "svc.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $short := or (eq $name .Release.Name) (and .Chart.IsRoot (contains $name .Release.Name)) -}}
{{- $full := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) $short) .Values.fullnameOverride -}}
{{- if gt (len $full) 35 -}}
{{- printf "%s-%s" ($full | trunc 26 | trimSuffix "-") ($full | sha256sum | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{- define "svc.name" -}}
{{- printf "%s-%s" (include "svc.fullname" .root) .component -}}
{{- end -}}

{{/* The name of the installation instead of the release: an umbrella chart can contain this chart several times. */}}
{{- define "svc.selector" -}}
app.kubernetes.io/name: svc
app.kubernetes.io/instance: {{ include "svc.fullname" .root | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels and annotations of a pod; takes "root" and "component", and optionally "own" (values with podLabels and podAnnotations) and "annotations".
     The labels do not contain the chart version, because a change would restart every pod. */}}
{{- define "svc.podMetadata" -}}
{{- $values := .root.Values -}}
{{- $own := default dict .own -}}
{{- $selector := include "svc.selector" . | fromYaml -}}
labels:
  {{- merge $selector (dict "app.kubernetes.io/part-of" "svc") (default dict $own.podLabels) $values.podLabels $values.commonLabels | toYaml | nindent 2 }}
{{- with merge dict (default dict .annotations) (default dict $own.podAnnotations) $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels of an object; takes "root" and "component", and optionally "labels" with its own ones. */}}
{{- define "svc.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/part-of" "svc"
  "app.kubernetes.io/version" (include "svc.version" .root | trunc 63 | regexFind "^.*[a-zA-Z0-9]")
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_")
-}}
{{- merge (include "svc.selector" . | fromYaml) $labels (default dict .labels) .root.Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "svc.metadata" -}}
name: {{ include "svc.name" . }}
namespace: {{ .root.Release.Namespace | quote }}
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

{{/* The host of publicUrl; empty if publicUrl is not an origin. */}}
{{- define "svc.host" -}}
{{- $url := include "svc.publicUrl" . -}}
{{- if regexMatch "^https?://([-a-zA-Z0-9._]|[^[:ascii:]])+(:[0-9]{1,5})?$|^https?://(\\[[0-9a-fA-F:.]+\\])(:[0-9]{1,5})?$" $url -}}
{{- (urlParse $url).hostname -}}
{{- end -}}
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
