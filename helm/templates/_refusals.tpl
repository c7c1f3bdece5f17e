{{/* Refuses values that the schema accepts one by one, but that can't work together. Each message names the values and what to do.
     Takes (dict "root" $ "component" "router|prefill|decode"). */}}
{{- define "baton.refuseWhatCannotRun" -}}
{{- $v := .root.Values -}}
{{- $part := .component -}}
{{- $pool := get $v $part -}}

{{- /* Kubernetes would refuse the Deployment, but only after other objects are made. */}}
{{- if ne (toString $pool.strategy.type) "Recreate" }}
{{- $rolling := $pool.strategy.rollingUpdate | default dict -}}
{{- $surge := dig "maxSurge" "25%" $rolling | toString -}}
{{- $unavailable := dig "maxUnavailable" "25%" $rolling | toString -}}
{{- if and (regexMatch "^0+%?$" $surge) (regexMatch "^0+%?$" $unavailable) }}
{{- fail (printf "%s.strategy.rollingUpdate has maxSurge %s and maxUnavailable %s: no pod could ever be replaced; set maxSurge to 1 where there is room for one more pod, else maxUnavailable to 1" $part $surge $unavailable) }}
{{- end }}
{{- end }}

{{- include "baton.refuseRequestsAboveLimits" (dict "of" (printf "%s.resources" $part) "resources" $pool.resources) }}
{{- range $container := concat ($pool.extraInitContainers | default list) ($pool.extraContainers | default list) }}
{{- include "baton.refuseRequestsAboveLimits" (dict "of" (printf "the resources of the container '%s' of %s" $container.name $part) "resources" $container.resources) }}
{{- if has $container.name (list $part "model") }}
{{- fail (printf "%s.extraContainers or extraInitContainers has a container '%s', which is the name of one of the chart's own; give it another one" $part $container.name) }}
{{- end }}
{{- end }}

{{- /* If several variables have the same name, Kubernetes takes the last, and the chart's come first. */}}
{{- range $variable := $pool.env }}
{{- if eq $variable.name "BATON_ATTACH_TOKEN" }}
{{- fail (printf "%s.env sets BATON_ATTACH_TOKEN, which would hide the token that all pods of the release share; set attach.token or attach.existingSecret" $part) }}
{{- else if eq $variable.name "POD_IP" }}
{{- fail (printf "%s.env sets POD_IP, which would hide the pod's own address; use another name" $part) }}
{{- else if and (eq $part "router") (eq $variable.name "BATON_API_KEY") }}
{{- fail "router.env sets BATON_API_KEY, a key that neither `helm test` nor the goodput Job would know; put it into a Secret, and set router.apiKeys.existingSecret" }}
{{- end }}
{{- end }}
{{- range $arg := $pool.args }}
{{- if regexMatch "^--?attach[-_]token($|=)" $arg }}
{{- fail (printf "%s.args has --attach-token, which would hide the token that all pods of the release share; set attach.token or attach.existingSecret" $part) }}
{{- end }}
{{- end }}

{{- if and (eq (int64 $pool.replicas) 0) (not $pool.autoscaling.enabled) }}
{{- if ne $part "prefill" }}
{{- fail (printf "%s.replicas is 0, and without a %s nothing is served; set it to 1 or more (to stop a release for a while, kubectl scale)" $part (ternary "router" "decode worker" (eq $part "router"))) }}
{{- else if eq $v.router.mode "disaggregated" }}
{{- fail "prefill.replicas is 0, and with router.mode 'disaggregated' every prompt is read by a prefill worker; set it to 1 or more, or router.mode to auto or colocated, in which decode workers read prompts" }}
{{- end }}
{{- end }}

{{- $claims := list -}}
{{- range $claim := $pool.resourceClaims }}{{ $claims = append $claims $claim.name }}{{ end -}}
{{- range $claim := dig "claims" list ($pool.resources | default dict) }}
{{- if not (has $claim.name $claims) }}
{{- fail (printf "%s.resources.claims names '%s', which %s.resourceClaims does not have; it has: %s" $part $claim.name $part (join ", " $claims | default "nothing")) }}
{{- end }}
{{- end }}
{{- if and (eq (toString $pool.dnsPolicy) "None") (not (dig "nameservers" list ($pool.dnsConfig | default dict))) }}
{{- fail (printf "%s.dnsPolicy is 'None', and %s.dnsConfig.nameservers is empty: the pods could not resolve any name; give a DNS server there" $part $part) }}
{{- end }}
{{- end }}

{{/* Refuses values that can't work together and that belong to more than one part. Takes the root. */}}
{{- define "baton.refuseWhatCannotServe" -}}
{{- $v := .Values -}}
{{- $probe := $v.router.probes.readiness -}}
{{- $period := dig "periodSeconds" 10 $probe | int64 -}}
{{- $threshold := dig "failureThreshold" 3 $probe | int64 -}}
{{- $wait := int64 $v.router.pairWaitSeconds -}}
{{- /* The first failing probe may come at once, so one period less counts. */}}
{{- $ready := mul $period (sub $threshold 1) -}}
{{- if gt $wait $ready }}
{{- fail (printf "router.pairWaitSeconds is %d, and router.probes.readiness takes a router without workers out of the Service after %d s (periodSeconds %d x (failureThreshold %d - 1)), so that new requests would be refused while others still wait; set router.probes.readiness.failureThreshold to %d or more" $wait $ready $period $threshold (add 1 (div (add $wait $period -1) $period))) }}
{{- end }}

{{- /* UCX needs a transport to the other pod for its first message. The transports in this list work only within a machine, a process or a GPU. */}}
{{- $near := list "shm" "sm" "mm" "sysv" "posix" "xpmem" "cma" "knem" "self" "loopback" "memory" "cuda" "cuda_copy" "cuda_ipc" "gdr_copy" -}}
{{- $far := hasPrefix "^" $v.kv.transports -}}
{{- range $way := splitList "," $v.kv.transports }}
{{- if not (has (trim $way) $near) }}{{ $far = true }}{{ end }}
{{- end }}
{{- if and (not $far) (include "baton.splits" .) }}
{{- fail (printf "kv.transports is '%s', and with router.mode '%s' KV travels between pods, which share no memory (each has an IPC namespace of its own): no two workers could be paired; set it to auto, or add tcp" $v.kv.transports $v.router.mode) }}
{{- end }}

{{- include "baton.refuseRequestsAboveLimits" (dict "of" "test.resources" "resources" $v.test.resources) }}
{{- include "baton.refuseRequestsAboveLimits" (dict "of" "goodput.resources" "resources" $v.goodput.resources) }}
{{- include "baton.refuseRequestsAboveLimits" (dict "of" "model.init.resources" "resources" $v.model.init.resources) }}
{{- include "baton.refuseModelFile" . }}
{{- $fetch := $v.model.fetch | default dict -}}
{{- include "baton.refuseRequestsAboveLimits" (dict "of" "model.fetch.resources" "resources" $fetch.resources) }}
{{- if and $fetch.name (ne $v.model.source "pvc") }}
{{- fail (printf "model.fetch.name is '%s' and model.source '%s': the Job fills a claim; set model.source to pvc" $fetch.name $v.model.source) }}
{{- end }}
{{- if include "baton.makesClaim" . }}
{{- if ne $v.model.source "pvc" }}
{{- fail (printf "model.pvc.create.enabled is true and model.source '%s', which uses no claim; set model.source to pvc" $v.model.source) }}
{{- end }}
{{- if not $v.model.pvc.create.size }}
{{- fail "model.pvc.create.enabled is true and model.pvc.create.size empty; set it to the size of the claim, such as 40Gi" }}
{{- end }}
{{- end }}
{{- $service := $v.service -}}
{{- if and $service.nodePort (eq $service.type "ClusterIP") }}
{{- fail (printf "service.nodePort is %d and service.type 'ClusterIP', which has none; set service.type to NodePort or LoadBalancer" (int64 $service.nodePort)) }}
{{- end }}
{{- if and $service.externalTrafficPolicy (eq $service.type "ClusterIP") }}
{{- fail (printf "service.externalTrafficPolicy is '%s' and service.type 'ClusterIP', which takes no traffic from outside; set service.type to NodePort or LoadBalancer" $service.externalTrafficPolicy) }}
{{- end }}
{{- include "baton.refuseHttp" . }}
{{- range $key := list "loadBalancerClass" "loadBalancerSourceRanges" }}
{{- if and (get $service $key) (ne $service.type "LoadBalancer") }}
{{- fail (printf "service.%s is set and service.type is '%s', which has no load balancer; set service.type to LoadBalancer" $key $service.type) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses a GGUF file in the wrong value, and values of model.file that name no file or only a part of a model. Takes the root. */}}
{{- define "baton.refuseModelFile" -}}
{{- $model := .Values.model -}}
{{- range $key, $path := dict "model.path" $model.path "model.hostPath.path" $model.hostPath.path }}
{{- if hasSuffix ".gguf" $path }}
{{- fail (printf "%s is '%s', a GGUF file; it takes the folder that the file is in, and model.file takes the file" $key $path) }}
{{- end }}
{{- end }}
{{- if and $model.file (include "baton.servesDemo" .) }}
{{- fail (printf "model.file is '%s' and model.path empty: the demo model is a folder; set model.path to the folder of the image that the file is in, or model.source" $model.file) }}
{{- end }}
{{- $part := regexFind "-[0-9]{5}-of-[0-9]{5}[.]gguf$" ($model.file | default "") -}}
{{- if and $part (not (hasPrefix "-00001-" $part)) }}
{{- fail (printf "model.file is '%s', one part of a split file; give the first one, whose name ends with -00001%s" $model.file (substr 6 20 $part)) }}
{{- end }}
{{- end }}

{{/* Refuses values of the HTTP port, its Ingress and the API keys that can't work together. Takes the root. */}}
{{- define "baton.refuseHttp" -}}
{{- $v := .Values -}}
{{- $http := $v.router.http | default dict -}}
{{- $keys := $v.router.apiKeys | default dict -}}
{{- if and $keys.create $keys.existingSecret }}
{{- fail (printf "router.apiKeys.create is true and router.apiKeys.existingSecret '%s'; clients' keys come from one Secret, so leave out one of the two" $keys.existingSecret) }}
{{- end }}
{{- if include "baton.http" . }}
{{- $port := int64 $http.port -}}
{{- if eq $port (int64 $v.router.port) }}
{{- fail (printf "router.http.port and router.port are both %d; one pod listens at both, so give them different numbers" $port) }}
{{- end }}
{{- if and $v.metrics.enabled (eq $port (int64 $v.metrics.port)) }}
{{- fail (printf "router.http.port and metrics.port are both %d; one pod listens at both, so give them different numbers" $port) }}
{{- end }}
{{- if eq $port (int64 $v.service.port) }}
{{- fail (printf "router.http.port and service.port are both %d, and one Service has both; give them different numbers" $port) }}
{{- end }}
{{- end }}
{{- if dig "ingress" "enabled" false $http }}
{{- if not $http.enabled }}
{{- fail "router.http.ingress.enabled is true and router.http.enabled false, so that the Ingress would lead to no port; set router.http.enabled to true" }}
{{- end }}
{{- if not (include "baton.apiKeysSecret" .) }}
{{- fail "router.http.ingress.enabled is true, and clients need no API key: everyone who reaches the Ingress could use the model; set router.apiKeys.existingSecret to a Secret with one key a line, or router.apiKeys.create to true" }}
{{- end }}
{{- end }}
{{- end }}

{{/* A Kubernetes quantity, such as 500m, 1.5, 2e9, 256Mi or 1G, times a thousand. */}}
{{- define "baton.thousandths" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "([KMGTPE]i|[mkMGTPE])$" $text -}}
{{- $scale := get (dict "" 1e3 "m" 1.0 "k" 1e6 "M" 1e9 "G" 1e12 "T" 1e15 "P" 1e18 "E" 1e21 "Ki" 1024e3 "Mi" 1048576e3 "Gi" 1073741824e3 "Ti" 1099511627776e3 "Pi" 1125899906842624e3 "Ei" 1152921504606846976e3) $unit -}}
{{- mulf (trimSuffix $unit $text | float64) $scale | printf "%f" -}}
{{- end }}

{{/* Refuses resource requests above their limits. Takes (dict "of" WORDS "resources" RESOURCES). */}}
{{- define "baton.refuseRequestsAboveLimits" -}}
{{- $resources := .resources | default dict -}}
{{- $limits := get $resources "limits" | default dict -}}
{{- $of := .of -}}
{{- range $name, $request := get $resources "requests" | default dict }}
{{- $limit := get $limits $name -}}
{{- if and (hasKey $limits $name) (gt (include "baton.thousandths" $request | float64) (include "baton.thousandths" $limit | float64)) }}
{{- fail (printf "%s: the request of %s is %v, above its limit, which is %v; lower the request or raise the limit" $of $name $request $limit) }}
{{- end }}
{{- end }}
{{- end }}
