{{/* Routes from files/routes.json, which `make gen` generates from the path table of the services. */}}

{{/* Routes of the enabled components as JSON: a list of {path, type, component}. All are below /api/v1, except the start page of
     identity. identity answers 404 for other paths below /api/v1. */}}
{{- define "svc.routes" -}}
{{- $table := .Files.Get "files/routes.json" | fromJson -}}
{{- $routes := list -}}
{{- range $table.routes -}}
{{- if (index $.Values .component).enabled -}}
{{- $routes = append $routes (dict "path" (printf "%s%s" $table.prefix .path) "type" "Prefix" "component" .component) -}}
{{- end -}}
{{- end -}}
{{- if .Values.identity.enabled -}}
{{- $routes = append $routes (dict "path" $table.prefix "type" "Prefix" "component" "identity") -}}
{{- range .Values.startPage | ternary (list "/" "/device" "/docs" "/.well-known/change-password") list -}}
{{- $routes = append $routes (dict "path" . "type" "Exact" "component" "identity") -}}
{{- end -}}
{{- end -}}
{{- toJson $routes -}}
{{- end -}}
