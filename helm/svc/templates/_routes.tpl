{{/* Who serves which path: files/paths.yaml, which `make gen` makes from the services' own table. */}}

{{/* The routes as JSON: a list of {path, component}, for what is installed. The rest is identity's, which answers 404. */}}
{{- define "svc.routes" -}}
{{- $table := .Files.Get "files/paths.yaml" | fromYaml -}}
{{- $routes := list -}}
{{- range $table.routes -}}
{{- if (index $.Values .component).enabled -}}
{{- $routes = append $routes (dict "path" (printf "%s%s" $table.prefix .path) "component" .component) -}}
{{- end -}}
{{- end -}}
{{- if .Values.identity.enabled -}}
{{- $routes = append $routes (dict "path" "/" "component" "identity") -}}
{{- end -}}
{{- toJson $routes -}}
{{- end -}}
